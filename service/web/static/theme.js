// The theme: as the system has it, or light or dark as chosen in the header and kept by this browser.  No module, so
// that it is known before anything is drawn.

(() => {
  const KEY = "thetad-theme";
  const CHOICES = ["light", "dark"]; // any other: as the system has it
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = "";
  try {
    chosen = localStorage.getItem(KEY) ?? "";
  } catch {
    // This browser keeps nothing: the choice lasts as long as the page.
  }
  const apply = () => {
    document.documentElement.dataset.theme = CHOICES.includes(chosen) ? chosen : system.matches ? "dark" : "light";
    document.dispatchEvent(new Event("theme"));
  };
  apply();
  system.addEventListener("change", apply);
  document.addEventListener("DOMContentLoaded", () => {
    const select = document.getElementById("theme");
    select.value = CHOICES.includes(chosen) ? chosen : "";
    select.addEventListener("change", () => {
      chosen = select.value;
      try {
        localStorage.setItem(KEY, chosen);
      } catch {
        // As above.
      }
      apply();
    });
  });
})();
