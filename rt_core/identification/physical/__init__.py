"""Physically consistent parameters: fits and completions in which every link could be a real body."""
