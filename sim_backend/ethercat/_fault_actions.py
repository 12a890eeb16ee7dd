"""Effects of the faults of a segment."""

from __future__ import annotations

from sim_backend.ethercat import _faults as faults
from sim_backend.ethercat._controller import SlaveController
from sim_backend.ethercat._machine import Machine
from sim_backend.ethercat._segment import Segment


def apply_fault(fault: faults.Fault, slave: int, segment: Segment, machine: Machine) -> None:
    """Apply a fault to segment and machine; `slave` is ignored where the fault is the segment's."""
    match fault:
        case faults.LostFrame(after="slaves"):
            segment.drop_replies(fault.count)
        case faults.LostFrame():
            segment.drop_frames(fault.count)
        case faults.Cut():
            segment.cut(fault.after)
        case faults.Mend():
            segment.mend()
        case faults.PowerOff():
            segment.power_off(slave)
        case faults.PowerOn():
            segment.power_on(slave)
        case faults.WorkingCounterDrop():
            segment.deaf(slave, fault.frames)
        case faults.AlError():
            segment.al_error(slave, fault.code)
        case faults.EmergencyMessage():
            segment.emergency(slave, fault.code)
        case faults.StuckEncoder():
            machine.stuck_encoder(slave, fault.stuck)
        case faults.EncoderJump():
            machine.encoder_jump(slave, fault.counts)
        case faults.ClockDrift():
            segment.drift_clock(slave, fault.ppm)
        case faults.ClockStep():
            segment.step_clock(slave, fault.ns)
        case faults.SlowReply():
            segment.delay_replies(fault.ns, fault.frames)
        case faults.RefuseOp():
            controller = segment.controllers[slave]
            if not isinstance(controller, SlaveController):
                raise TypeError(f"slave {slave} is a {type(controller).__name__}, which cannot refuse OP")
            controller.refuse_op, controller.refuse_op_code = fault.refuse, fault.code
        case faults.DriveFault():
            machine.drive_fault(slave, fault.code)
        case faults.SafeTorqueOff():
            machine.safe_torque_off(slave, fault.active)
        case faults.Mains():
            machine.mains(slave, fault.on)
