"""Answers of UFM about a made fabric: the fields of its REST API Guide for GET resources/{systems, ports, links}."""

from typing import Any

Json = dict[str, Any]


def fabric(
    units: int = 2, rails: int = 2, hosts: int = 2
) -> tuple[list[Json], list[Json], list[Json]]:
    """Systems, ports and links of a rail fabric under two spines."""
    spines = [("spine-a", "switch", 0xF0, ""), ("spine-b", "switch", 0xF1, "")]
    leaves = [
        [(f"leaf-{r}-{u}", "switch", 0xA0 + 16 * u + r, "") for r in range(rails)]
        for u in range(units)
    ]
    pairs = [(leaf, spine) for row in leaves for leaf in row for spine in spines]
    pairs += [((f"u{u}n{h}", "host", 0x1000 + 256 * u + 16 * h + r, f" mlx5_{r}"), leaves[u][r])
              for u in range(units) for h in range(hosts) for r in range(rails)]  # fmt: skip
    ports: list[Json] = []
    links: list[Json] = []
    used: dict[int, int] = {}
    for a, b in pairs:
        numbers = []
        for end in (a, b):
            used[end[2]] = used.get(end[2], 0) + 1
            numbers.append(used[end[2]])
        near, far = port(a, numbers[0], b, numbers[1]), port(b, numbers[1], a, numbers[0])
        ports += [near, far]
        links.append(link(near, far))
    owners = {end[2]: end for pair in pairs for end in pair}
    systems = [
        {"system_name": name, "guid": f"{guid:016x}", "system_guid": f"{guid:016x}", "type": kind,
         "state": "active", "severity": "Info", "ports": [p["name"] for p in ports if p["systemID"] == f"{guid:016x}"]}
        for guid, (name, kind, _, _) in owners.items()
    ]  # fmt: skip
    return systems, ports, links


def port(
    own: tuple[str, str, int, str], number: int, far: tuple[str, str, int, str], far_number: int
) -> Json:
    guid, far_guid = f"{own[2]:016x}", f"{far[2]:016x}"
    what = "Computer IB Port" if own[1] == "host" else "Switch IB Port"
    return {
        "description": what, "number": number, "external_number": number, "physical_state": "Link Up",
        "logical_state": "Active", "severity": "Info", "high_ber_severity": "N/A", "tier": 3, "lid": 34, "mtu": 4096,
        "active_speed": "NDR", "active_width": "4x", "enabled_width": ["1x", "4x"], "dname": str(number),
        "name": f"{guid}_{number}", "guid": guid, "systemID": guid, "system_name": own[0], "module": "N/A",
        "node_description": f"{own[0]}{own[3] or f':{number}'}", "peer": f"{far_guid}_{far_number}",
        "peer_guid": far_guid, "peer_node_guid": far_guid, "peer_node_name": far[0], "peer_port_dname": str(far_number),
        "peer_node_description": f"{far[0]}{far[3] or f':{far_number}'}", "peer_lid": 7,
    }  # fmt: skip


def link(near: Json, far: Json) -> Json:
    return {
        "source_guid": near["guid"], "source_port": str(near["number"]), "source_port_dname": near["dname"],
        "source_port_name": near["name"], "source_port_node_description": near["node_description"],
        "destination_guid": far["guid"], "destination_port": str(far["number"]), "destination_port_dname": far["dname"],
        "destination_port_name": far["name"], "destination_port_node_description": far["node_description"],
        "width": "4x", "severity": "Info", "name": f"{near['name']}:{far['name']}", "capabilities": [],
    }  # fmt: skip
