"""Test examples/cloudformation: cfn-lint finds nothing, and the stack has the documented properties."""

import subprocess
import sys
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")
TEMPLATE = Path(__file__).resolve().parents[3] / "examples/cloudformation/vpc.yaml"
EVERYTHING = "-1"


class Loader(yaml.SafeLoader):
    """A YAML loader that expands CloudFormation's short forms: !Ref NAME becomes {"Ref": NAME}."""


def short_form(loader, name, node):
    if isinstance(node, yaml.ScalarNode):
        return {name: loader.construct_scalar(node)}
    return {name: loader.construct_sequence(node, deep=True)}


Loader.add_multi_constructor("!", short_form)


@pytest.fixture(scope="module")
def template():
    return yaml.load(TEMPLATE.read_text(), Loader)


@pytest.fixture(scope="module")
def resources(template):
    return template["Resources"]


def of_kind(resources, kind):
    return {name: each["Properties"] for name, each in resources.items() if each["Type"] == f"AWS::{kind}"}


@pytest.mark.more  # the others read what it says
def test_cfn_lint_finds_nothing():
    pytest.importorskip("cfnlint")
    found = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), "--regions", "us-east-1", "eu-west-1", "--", str(TEMPLATE)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert found.returncode == 0, found.stdout + found.stderr


def test_job_hosts_reach_one_another_on_all_ports(resources):
    """Both directions are open, as docs/sagemaker.md asks under "VPC and security groups"."""
    hosts = {"Ref": "Hosts"}
    come = [rule for rule in of_kind(resources, "EC2::SecurityGroupIngress").values() if rule["GroupId"] == hosts]
    go = [rule for rule in of_kind(resources, "EC2::SecurityGroupEgress").values() if rule["GroupId"] == hosts]
    assert [rule["IpProtocol"] for rule in come if rule["SourceSecurityGroupId"] == hosts] == [EVERYTHING]
    assert [rule["IpProtocol"] for rule in go if rule["DestinationSecurityGroupId"] == hosts] == [EVERYTHING]
    assert len(come) == 1  # nobody else begins to talk to them


def test_hosts_in_either_zone_reach_efs(resources):
    targets = of_kind(resources, "EFS::MountTarget").values()
    assert {target["SubnetId"]["Ref"] for target in targets} == {"SubnetA", "SubnetB"}
    assert all(target["SecurityGroups"] == [{"Ref": "FileSystemGroup"}] for target in targets)
    zones = [resources[name]["Properties"]["AvailabilityZone"]["Select"][0] for name in ("SubnetA", "SubnetB")]
    assert zones == [0, 1]
    (rule,) = resources["FileSystemGroup"]["Properties"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"], rule["SourceSecurityGroupId"]) == (2049, 2049, {"Ref": "Hosts"})
    way = resources["HostsToFileSystem"]["Properties"]
    assert (way["GroupId"], way["DestinationSecurityGroupId"]) == ({"Ref": "Hosts"}, {"Ref": "FileSystemGroup"})
    assert way["FromPort"] <= 2049 <= way["ToPort"]
    assert resources["FileSystem"]["DeletionPolicy"] == "Retain"  # to delete a stack deletes no data


def test_s3_is_reachable_without_the_internet(resources):
    (gateway,) = [
        each for each in of_kind(resources, "EC2::VPCEndpoint").values() if each["VpcEndpointType"] == "Gateway"
    ]
    assert gateway["ServiceName"]["Sub"].endswith(".s3")
    assert gateway["RouteTableIds"] == [{"Ref": "Routes"}]
    with_routes = {each["SubnetId"]["Ref"] for each in of_kind(resources, "EC2::SubnetRouteTableAssociation").values()
                   if each["RouteTableId"] == {"Ref": "Routes"}}  # fmt: skip
    assert with_routes == {"SubnetA", "SubnetB"}
    out = resources["Hosts"]["Properties"]["SecurityGroupEgress"]
    assert [(rule["FromPort"], rule["CidrIp"]) for rule in out] == [(443, "0.0.0.0/0")]


def test_hourly_billed_resources_are_created_only_on_request(template, resources):
    costs = {
        name: each.get("Condition") for name, each in resources.items()
        if each["Type"] in ("AWS::EC2::NatGateway", "AWS::EC2::EIP")
        or each.get("Properties", {}).get("VpcEndpointType") == "Interface"
    }  # fmt: skip
    assert set(costs.values()) == {"HasNat", "HasEndpoints"}
    assert template["Parameters"]["Outbound"]["Default"] == "none"


def test_only_sagemaker_may_assume_the_narrow_role(resources):
    role = resources["Role"]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}
    (policy,) = role["Policies"]
    anywhere, writes = set(), set()
    for statement in policy["PolicyDocument"]["Statement"]:
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        assert not any("*" in action for action in actions)
        writes |= {action for action in actions if action.startswith("s3:")}
        if statement["Resource"] == "*":
            anywhere |= set(actions)
    assert {action.partition(":")[2] for action in anywhere if "Describe" not in action} == {
        "GetAuthorizationToken",
        "PutMetricData",
    }
    assert writes == {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"}
    assert "ManagedPolicyArns" not in role


def test_stack_outputs_are_the_arguments_of_submit(template):
    from_stack = template["Outputs"]["Arguments"]["Value"]["Sub"]
    for argument in ("--role ", "--subnets ", "--security-groups ", "--channel training=efs://"):
        assert argument in from_stack
