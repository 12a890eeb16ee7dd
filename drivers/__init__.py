"""Sources of joint frames, and the files that describe robots and hold recordings."""
