package roles

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"subctl/agent/mesh"
	"subctl/agent/mesh/report"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
)

// OfNodes returns the roles that program the kernel of their node.
func OfNodes() []role.Role { return []role.Role{Gateway(), Route()} }

// PlanNode returns what a node's kernel should hold, for all roles.
func PlanNode(s role.Snapshot) (dataplane.State, error) {
	all := dataplane.State{}
	for _, r := range OfNodes() {
		p, err := r.Plan(s)
		if err != nil {
			return nil, err
		}
		if err := all.Merge(p.State); err != nil {
			return nil, fmt.Errorf("merging the plan of role %s: %w", r.Name, err)
		}
	}
	return all, nil
}

// Gateway returns the role of a gateway pod. The gateway holds the cables and publishes
// its Endpoint while it is active or a standby, and publishes the cluster while it is the speaker.
func Gateway() role.Role {
	return role.Role{
		Name:          "gateway",
		Owner:         dataplane.GatewayOwner,
		MetricsPort:   dataplane.GatewayMetricsPort,
		ProbePort:     dataplane.GatewayProbePort,
		Resync:        role.Heartbeat,
		Watches:       role.Kinds(),
		GlobalWatches: mesh.TranslatedKinds(),
		Parts: []role.Part{
			role.Election, role.KeyRing, role.Probing, role.Discovery, role.PublicIP, role.KernelView, role.Drops,
			role.FlowCount, role.Exchange, role.Networks, role.Agents,
			role.APIServers,
		},
		Plan: deciding(mesh.PlanGateway),
		Report: func(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
			return report.Gateway(s, mesh.PlanOf(p), o)
		},
		Recall: mesh.RecallGateway,
	}
}

// Route returns the role of the route agent, which runs on every node: the paths between
// the nodes and the gateways of one cluster.
//
// It does not watch Gateways, each of which is written every few seconds, nor ConfigMaps:
// the settings in force are noted on the Cluster object.
func Route() role.Role {
	watches := slices.DeleteFunc(role.Kinds(), func(o role.Object) bool {
		switch o.(type) {
		case *submarinerv1.Gateway, *corev1.ConfigMap:
			return true
		}
		return false
	})
	return role.Role{
		Name:        "route",
		Owner:       dataplane.RouteOwner,
		MetricsPort: dataplane.RouteMetricsPort,
		ProbePort:   dataplane.RouteProbePort,
		Resync:      30 * time.Second,
		Watches:     watches,
		Parts:       []role.Part{role.Probing, role.Drops, role.Forwarding, role.APIServers},
		Plan:        deciding(mesh.PlanRoute),
		Report: func(s role.Snapshot, p role.Plan, o role.Outcome) role.Report {
			return report.Route(s, mesh.PlanOf(p), o)
		},
		Recall: mesh.RecallRoute,
	}
}

// deciding returns a plan function as a Role has it.
func deciding(plan func(role.Snapshot) (mesh.Plan, error)) func(role.Snapshot) (role.Plan, error) {
	return func(s role.Snapshot) (role.Plan, error) {
		p, err := plan(s)
		if err != nil {
			return role.Plan{}, err
		}
		p.Decisions = &p
		return p.Plan, nil
	}
}
