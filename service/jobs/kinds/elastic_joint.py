"""Spring and friction of an elastic joint, as `thetad identify --model elastic_joint` finds them."""

from service.operations.elastic.parameters import ElasticJointJob
from service.operations.errors import OperationError
from service.operations.kind import Kind, Outcome
from service.operations.workspace import Workspace
from service.protocol.json_values import json_values


def _run(p: ElasticJointJob, ws: Workspace) -> Outcome:
    from service.operations.elastic.joint import ElasticJointError, identify_joint
    from service.operations.inputs import open_robot
    from service.reports.elastic import elastic_page

    ws.progress(0.05, "reading the recording")
    recording = ws.recording()
    model = None if p.robot is None else open_robot(p.robot).model
    try:
        result = identify_joint(p, recording, model, created=ws.created, progress=ws.progress)
    except ElasticJointError as error:
        raise OperationError(str(error)) from error
    ws.progress(0.8, "report")
    ws.write_json("elastic.json", result.document)
    ws.write("stiffness.csv", result.table())
    ws.write("report.html", elastic_page(result))
    return Outcome(result.answer.verdict, result.summary(), json_values(result.document), result.accepted)


KIND = Kind(
    "elastic_joint", "stiffness and friction of an elastic joint with encoders on motor and link", ElasticJointJob,
    _run, recordings=("recording",),
)  # fmt: skip
