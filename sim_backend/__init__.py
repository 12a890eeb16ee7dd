"""A robot made of software, in place of hardware."""
