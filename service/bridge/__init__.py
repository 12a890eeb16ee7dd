"""What a daemon publishes, in the forms of other programs: live for Foxglove, described for ROS 2."""
