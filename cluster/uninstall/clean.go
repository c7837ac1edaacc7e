package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/cluster/workload"
	"subctl/internal/wake"
)

// gatewayAgent is the name, in messages, of the agent that writes Gateways.
const gatewayAgent = "gateway"

// agentReport is the report of an agent about its node.
type agentReport struct {
	agent, node string
	failure     string
	conditions  []metav1.Condition
}

// clean waits until every agent has reported that its node is clean, and returns the nodes that are
// not clean. It does not wait for nodes that are not Ready. What keeps an agent from running is
// printed at once. A node whose gateway agent cannot run is no gateway from then on, if join made
// it one: then its route agent cleans up.
func (u *Operation) clean(ctx context.Context, r *Remains) (dirty []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	var agents []agentReport
	var failed, lost []string
	var waiting []string
	printed := map[string]bool{}
	for {
		nodes, reports, err := readReports(ctx, u.Cluster)
		if err == nil {
			agents, failed = unclean(nodes, reports)
			if r.Namespace != nil && r.Namespace.DeletionTimestamp != nil {
				lost = unreported(nodes, reports)
			}
			if len(agents) == 0 {
				break
			}
			waiting = u.explain(ctx, r, agents, printed)
		} else if ctx.Err() == nil {
			waiting = []string{err.Error()}
		}
		if wake.After(ctx, cluster.Poll) == nil {
			continue
		}
		if u.forced(Nodes) && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			u.Report.Warn("continuing although these nodes are not clean:\n%s", strings.Join(waiting, "\n"))
			break
		}
		return nil, fmt.Errorf(
			"waiting for the agents to clean the nodes: %w:\n  %s\nrepair them and run the same "+
				"command again, or continue with --force=%s",
			cluster.Interrupted(ctx),
			strings.Join(waiting, "\n  "),
			Nodes,
		)
	}
	for _, node := range failed {
		u.Report.Warn("node %s is not Ready, so its agents cannot clean it", node)
	}
	for _, node := range lost {
		u.Report.Warn("the agents of node %s were deleted with namespace %s, and have not reported that the node is "+
			"clean",
			node, cluster.Namespace)
	}
	dirty = slices.Concat(failed, lost)
	for _, a := range agents {
		dirty = append(dirty, a.node)
	}
	if len(dirty) == 0 {
		u.Report.Done("the nodes are clean")
	}
	slices.Sort(dirty)
	return slices.Compact(dirty), nil
}

// unreported returns the nodes on which agents can run and of which no route agent has a report. In
// a namespace that is being deleted, the report may be deleted already.
func unreported(nodes []corev1.Node, reports []agentReport) (out []string) {
	for _, n := range nodes {
		reported := slices.ContainsFunc(reports, func(r agentReport) bool {
			return r.node == n.Name && r.agent != gatewayAgent
		})
		if cluster.NoPods(n) == "" && !reported {
			out = append(out, n.Name)
		}
	}
	return out
}

// readReports returns the nodes and the reports of their agents.
func readReports(ctx context.Context, c client.Client) ([]corev1.Node, []agentReport, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	var reports []agentReport
	agents := &submarinerv1.RouteAgentList{}
	if err := c.List(ctx, agents, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing route agents: %w", err)
	}
	for _, a := range agents.Items {
		reports = append(reports, agentReport{"route agent", a.Name, a.Status.StatusFailure, a.Status.Conditions})
	}
	gateways := &submarinerv1.GatewayList{}
	if err := c.List(ctx, gateways, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing gateways: %w", err)
	}
	for _, g := range gateways.Items {
		reports = append(reports, agentReport{gatewayAgent, g.Name, g.Status.StatusFailure, g.Status.Conditions})
	}
	return nodes.Items, reports, nil
}

// unclean returns the reports of agents to wait for, and the nodes that are not clean
// and cannot become clean because they are not Ready. Nodes without a report are clean: no
// agent has changed them. Reports of deleted nodes do not count. On a node that is no longer
// a gateway, the route agent cleans up after the gateway agent and reports it.
func unclean(nodes []corev1.Node, reports []agentReport) (waiting []agentReport, dirty []string) {
	for _, r := range reports {
		i := slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == r.node })
		if i < 0 || meta.IsStatusConditionTrue(r.conditions, submarinerv1.ConditionClean) {
			continue
		}
		if r.agent == gatewayAgent && !cluster.IsGateway(nodes[i]) {
			continue
		}
		if !cluster.IsReady(nodes[i]) {
			dirty = append(dirty, r.node)
			continue
		}
		waiting = append(waiting, r)
	}
	slices.Sort(dirty)
	return waiting, slices.Compact(dirty)
}

// explain returns what the agents have not reported, one line each, with the reason for which an
// agent does not run.
func (u *Operation) explain(
	ctx context.Context, r *Remains, agents []agentReport, printed map[string]bool,
) (out []string) {
	faults := map[[2]string]workload.Fault{}
	// Without the reasons, the lines are shorter.
	daemonSets := []string{cluster.GatewayName, cluster.RouteAgentName}
	if s, err := workload.Read(ctx, u.Cluster, cluster.Namespace, daemonSets, nil); err == nil {
		for _, f := range s.Ask(ctx, u.Cluster, s.Faults()) {
			faults[[2]string{f.Workload, f.Node}] = f
		}
	}
	for _, a := range agents {
		text := fmt.Sprintf("node %s: the %s has not reported that it is clean", a.node, a.agent)
		name := cluster.RouteAgentName
		if a.agent == gatewayAgent {
			name = cluster.GatewayName
		}
		if a.failure != "" {
			text += ": " + a.failure
		}
		f, down := faults[[2]string{"DaemonSet " + name, a.node}]
		if down = down && !f.Usual; down {
			text += ": it does not run: " + f.Reason()
		}
		out = append(out, text)
		if !down || printed[text] {
			continue
		}
		printed[text] = true
		u.Report.Warn("%s", text)
		if name == cluster.GatewayName && f.Lasting && slices.Contains(r.Nodes, a.node) {
			if err := unlabelGateway(ctx, u.Cluster, a.node); err != nil {
				u.Report.Warn("%v", err)
				continue
			}
			u.Report.Warn("node %s is no gateway any more: its route agent cleans up", a.node)
		}
	}
	return out
}
