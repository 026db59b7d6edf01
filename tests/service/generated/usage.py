"""What a caller writes with the generated Python client. Arguments: URL of a service, archive of labelled rows."""

import importlib
import io
import pkgutil
import sys
from pathlib import Path

import candor_client
from candor_client import Client
from candor_client.api.models import model_readiness
from candor_client.api.predict import predict, predict_instances
from candor_client.api.recalibration import upload_labelled_set
from candor_client.api.v2 import v2_infer
from candor_client.models import (
    InferenceRequest,
    InferenceResponse,
    InputTensor,
    InputTensorDatatype,
    InstancePredictions,
    InstancesRequest,
    LabelledSet,
    ModelReadiness,
    PredictionRequest,
    Predictions,
    Problem,
    RequestParameters,
)
from candor_client.types import File

for module in pkgutil.walk_packages(candor_client.__path__, "candor_client."):
    importlib.import_module(module.name)

client = Client(sys.argv[1])
image = [[0] * 8] * 8
predictions = predict.sync("digits", client=client, body=PredictionRequest.from_dict({"inputs": [image]}))
assert isinstance(predictions, Predictions)
instances = predict_instances.sync("digits", client=client, body=InstancesRequest(instances=[image]))
assert isinstance(instances, InstancePredictions)
assert instances.predictions == [[*predictions.predictions[0].probabilities.additional_properties.values()]]

tensor = InputTensor(name="input", shape=[1, 8, 8, 1], datatype=InputTensorDatatype.UINT8, data=[0] * 64)
request = InferenceRequest(inputs=[tensor], parameters=RequestParameters(policy="auto-read"))
inferred = v2_infer.sync("digits", client=client, body=request)
assert isinstance(inferred, InferenceResponse)
assert [output.name for output in inferred.outputs] == ["logits", "probabilities", "confidence", "decision"]

readiness = model_readiness.sync("digits", client=client)
assert isinstance(readiness, ModelReadiness)
assert readiness.ready
problem = model_readiness.sync_detailed("letters", client=client)
assert problem.status_code == 404

archive = io.BytesIO(Path(sys.argv[2]).read_bytes())
labelled = upload_labelled_set.sync("digits", client=client, body=File(payload=archive))
assert isinstance(labelled, LabelledSet), labelled.detail if isinstance(labelled, Problem) else labelled
