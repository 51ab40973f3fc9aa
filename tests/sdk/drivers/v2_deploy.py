"""Deploy models in local mode with SageMaker Python SDK 2 and call them; run by the Python of .venv-sdk-v2.

Standard input, as JSON: a list of endpoints, made one after the other: {"model": arguments for Model, "port": of this
machine, "requests": [{"body", "type", "accept"}]}. Printed: "answers: " and the answers to all requests, as JSON.
"""

import json
import sys

from sagemaker.deserializers import CSVDeserializer, JSONDeserializer
from sagemaker.local import LocalSession
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer, JSONSerializer

SERIALIZERS = {"json": JSONSerializer, "csv": CSVSerializer}
DESERIALIZERS = {"json": JSONDeserializer, "csv": CSVDeserializer}

answers = []
for endpoint in json.load(sys.stdin):
    session = LocalSession()
    session.config = {"local": {"local_code": True, "container_root": ".", "serving_port": endpoint["port"]}}
    model = Model(
        role="arn:aws:iam::111122223333:role/serving",
        predictor_cls=Predictor,
        sagemaker_session=session,
        **endpoint["model"],
    )
    # Local mode waits for /ping in any case. To wait is to look whether that is over, 30 seconds after it is.
    predictor = model.deploy(initial_instance_count=1, instance_type="local", wait=False)
    try:
        for request in endpoint["requests"]:
            predictor.serializer = SERIALIZERS[request["type"]]()
            predictor.deserializer = DESERIALIZERS[request["accept"]]()
            answers.append(predictor.predict(request["body"]))
    finally:
        predictor.delete_endpoint()
print("answers:", json.dumps(answers))
