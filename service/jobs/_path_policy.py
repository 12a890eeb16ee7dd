"""Policy for paths in requests: every path of a client is checked here before it is used."""

from dataclasses import dataclass
from pathlib import Path

from service.config.load import Config
from service.operations.errors import OperationError


@dataclass(frozen=True)
class PathPolicy:
    """Folders in which clients may name files, and one in which they may not."""

    folders: tuple[Path, ...] | None = None  # None: all
    secret: Path | None = None  # directory of keys, of which nothing is read or written for anybody

    @classmethod
    def of(cls, config: Config) -> "PathPolicy":
        """Return the policy of a daemon: `jobs.folders`, or with keys the recordings, or else any folder."""
        folders = config.jobs.folders
        if folders is None and config.daemon.keyed:
            folders = tuple(config.recording_dir(arm) for arm in config.arm)
        return cls(folders, config.keys_dir)

    def check(self, path: Path, name: str) -> Path:
        """Return the resolved path; `OperationError` if parameter `name` is no absolute path, or outside."""
        if not path.is_absolute():
            raise OperationError(f"{name}: {path}: give the whole path, for the daemon works in another directory")
        try:
            whole = path.resolve()
            secret = self.secret is not None and whole.is_relative_to(self.secret.resolve())
            inside = self.folders is None or any(whole.is_relative_to(folder.resolve()) for folder in self.folders)
        except (OSError, ValueError, RuntimeError) as error:  # too long, a null byte, links in a circle
            why = getattr(error, "strerror", None) or error
            raise OperationError(f"{name}: {str(path)!r:.200}: cannot be read: {why}") from error
        if secret:
            raise OperationError(f"{name}: {path}: keys are there, and nothing of them is for jobs")
        if not inside:
            raise OperationError(f"{name}: {path}: is in none of the folders that clients may name (jobs.folders)")
        return whole

    def check_robot(self, text: str, name: str) -> None:
        """Raise `OperationError` if a robot is named by a path although folders are restricted."""
        if self.folders is not None and (Path(text).suffix or len(Path(text).parts) != 1 or "\0" in text):
            raise OperationError(
                f"{name}: {text!r:.200}: give the name of a robot or its whole description, not a path"
            )
