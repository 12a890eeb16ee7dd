"""The texts that tests of robot files begin with."""

from pathlib import Path

from drivers.files.robots.file import RobotFile, load_robot

HEAD = 'format = 1\nname = "x"\nkinematics = "mdh"\n'
ELBOW = '[[joint]]\nname = "elbow"\n'
URDF = """<robot name="r"><link name="a"/><link name="b"/>
<joint name="j" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 0 1"/>
<limit lower="-1" upper="1" velocity="2" effort="3"/></joint></robot>"""


def load(folder: Path, text: str) -> RobotFile:
    path = folder / "x.toml"
    path.write_text(text)
    return load_robot(path)
