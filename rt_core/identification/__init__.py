"""Identification from recordings: preprocessing, least squares, uncertainty."""
