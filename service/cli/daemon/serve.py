"""`thetad serve`: run the daemon."""

import argparse
from pathlib import Path
from typing import Any

from service.cli._common import CliError, Exit, one_line, print_json
from service.security.files import SecretFileError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("-c", "--config", type=Path, required=True, metavar="FILE", help="configuration, TOML")
    parser.add_argument("--check", action="store_true", help="check everything that can be checked, then exit")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from service.config.load import ConfigError, load_config
    from service.protocol.transient_errors import is_transient

    try:
        config = load_config(arguments.config)
    except ConfigError as error:
        raise CliError(str(error), Exit.UNAVAILABLE if is_transient(error) else Exit.INPUT) from error
    if arguments.check:
        return check(config, str(arguments.config))
    from service.supervisor.daemon import RunError, exit_code, serve
    from service.supervisor.directories import AlreadyRunningError
    from service.supervisor.supervisor import StartError
    from service.worker.bind import PortTakenError

    try:
        serve(config)
    except (AlreadyRunningError, PortTakenError, RunError, StartError) as error:
        raise CliError(f"{arguments.config}: {error}", exit_code(error)) from error
    except BrokenPipeError:
        raise
    except OSError as error:  # a problem of this computer at this moment: systemd should retry
        raise CliError(f"{arguments.config}: {one_line(error)}", Exit.UNAVAILABLE) from error
    except (ConfigError, SecretFileError) as error:
        raise CliError(str(error), exit_code(error)) from error
    return Exit.OK


def check(config: Any, origin: str) -> int:
    """Check the tokens, robots, sources and estimator settings of a configuration; raises the first error."""
    from drivers.files.robots.file import RobotError
    from service.acquisition.sources import check_source, make_driver
    from service.config.arm_robot import load_arm_robot, online_settings
    from service.config.load import BusConfig, ConfigError
    from service.estimator.elastic_tracking import elastic_tracking
    from service.web.guard import read_tokens

    if config.daemon.serves_http:
        try:
            read_tokens(config.daemon.http_token_file, config.daemon.http_role)
        except SecretFileError as error:
            raise ConfigError(f"{origin}: {error}") from error
    arms = []
    for index, arm in enumerate(config.arm):
        try:
            robot = load_arm_robot(arm, config.base)
        except RobotError as error:
            raise ConfigError(f"{origin}: arm[{index}].robot: {error}") from error
        online_settings(arm, robot, f"{origin}: arm[{index}].estimator")
        if isinstance(arm.driver, BusConfig):  # start the bus, but switch nothing on
            arm = arm.model_copy(update={"driver": arm.driver.model_copy(update={"enable": False})})
        with make_driver(arm, robot.model) as driver:
            check_source(arm, robot.model, driver.info)
            where = f"{origin}: arm[{index}].elastic"
            elastic_tracking(arm, robot.model, driver.info.channels, driver.info.rate_hz, where)
            arms.append(
                {
                    "arm": arm.name, "robot": robot.model.name, "joints": robot.model.n, "source": driver.info.source,
                    "rate_hz": driver.info.rate_hz, "channels": driver.info.channels,
                }
            )  # fmt: skip
    print_json({"config": origin, "ok": True, "state_dir": config.state_dir, "arms": arms})
    return Exit.OK
