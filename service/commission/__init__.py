"""Commissioning: from the description of a robot to a validated model, step by step."""
