"""Simulated arms whose joints give way: motors and links with states of their own, and springs between them."""
