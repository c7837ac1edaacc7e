package join

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/cable"
	"subctl/cable/drivers"
	"subctl/cluster"
	"subctl/cluster/workload"
	"subctl/internal/look"
	"subctl/internal/wake"
	"subctl/internal/words"
	"subctl/policy/catalog"
	"subctl/policy/impact"
)

// Wait waits until the agents run, the endpoint of the gateway is on the broker, and the
// gateway is connected to every member that has a gateway, by the new cable where the join
// changes the cable. If ctx is done before that, the error lists what is missing and why.
//
// Reasons for which agents do not run are printed as soon as they are seen. Wait returns early if
// one of them does not pass by itself, such as a policy that rejects the pods.
func (j *Operation) Wait(ctx context.Context) error {
	missing := []string{"the state of the agents has not been read yet"}
	goal := "the agents to run"
	if len(j.Plan.Present) > 0 {
		goal = "connections to " + words.List(j.Plan.Present)
	}
	j.Report.Step("waiting for %s", goal)
	var agents workload.Follower
	var retried []client.Object
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		for _, obj := range retried {
			_ = j.annotate(ctx, obj, "") // an annotation that is left has no effect
		}
	}()
	for poll := 0; ; poll++ {
		faults, lines, err := j.unready(ctx)
		seen := append(workload.Lines(faults), lines...)
		if err == nil || len(faults) > 0 {
			for _, line := range workload.Lines(agents.Poll(faults)) {
				j.Report.Warn("%s", line)
			}
			if again := j.retryAt(ctx, poll, faults); again != nil {
				retried = again
			}
		}
		if agents.Lasting == faultPolls {
			text := fmt.Sprintf("waiting for %s: the agents cannot start:\n  %s", goal, strings.Join(seen, "\n  "))
			if slices.ContainsFunc(faults, func(f workload.Fault) bool { return f.Image }) {
				text += "\nspecify another image with subctl join --image"
			}
			return errors.New(text)
		}
		switch {
		case err == nil && len(seen) == 0:
			j.Report.Done("the agents run%s", connectedTo(j.Plan.Present))
			return nil
		case err == nil:
			missing = seen
		case ctx.Err() == nil:
			missing = []string{err.Error()}
		}
		if wake.After(ctx, cluster.Poll) != nil {
			return fmt.Errorf("waiting for %s: %w:\n  %s", goal, cluster.Interrupted(ctx),
				strings.Join(missing, "\n  "))
		}
	}
}

const (
	// faultPolls is the number of consecutive polls that find a fault that waiting does not help,
	// after which Wait returns: a kubelet retries, a registry may have a short fault, and a
	// controller that is made to try again takes a moment.
	faultPolls = 5
	// retryPolls is the number of polls after which Wait makes controllers try again.
	retryPolls = 10
)

// retryAt makes controllers try again, at once and every retryPolls polls. It returns the
// workloads, nil if none.
func (j *Operation) retryAt(ctx context.Context, poll int, faults []workload.Fault) []client.Object {
	if poll%retryPolls != 0 {
		return nil
	}
	return j.retryControllers(ctx, faults, j.Member.Now())
}

func connectedTo(members []string) string {
	if len(members) == 0 {
		return ""
	}
	return ", connected to " + words.List(members)
}

// unready returns what Wait still waits for: faults of agents, and one line for each other reason.
func (j *Operation) unready(ctx context.Context) (faults []workload.Fault, lines []string, err error) {
	agents, err := j.readAgents(ctx)
	if err != nil {
		return nil, nil, err
	}
	faults = agents.Ask(ctx, j.Member, agents.Faults())
	lines, err = j.unconnectedYet(ctx, len(faults) > 0, agents.NotReady())
	return faults, lines, err
}

// unconnectedYet returns why the cluster is not connected yet, one line each. It does not look at
// the broker if agents are down, nor at gateways on skipped nodes.
func (j *Operation) unconnectedYet(ctx context.Context, down bool, skipped []string) ([]string, error) {
	out, err := j.unallocated(ctx)
	if err != nil {
		return nil, err
	}
	unpublished, err := j.unpublished(ctx) // first: until it is published, connections may still use the old key
	if err != nil {
		return nil, err
	}
	out = append(out, unpublished...)
	gateways := &submarinerv1.GatewayList{}
	if err := j.Member.List(ctx, gateways, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("listing gateways: %w", err)
	}
	current, stale := reporting(gateways.Items, j.Member.Now())
	if j.Plan.Submariner.Spec.MultiActiveGatewayEnabled {
		out = append(out, inactiveGateways(current)...)
	}
	if len(out) == 0 && !down {
		out = j.incomplete(current, skipped)
	}
	if missing := unconnected(current, j.Plan.Present, j.Plan.Cables, j.pinged()); len(missing) > 0 {
		if len(stale) > 0 && !slices.ContainsFunc(current, active) {
			missing = []string{"no gateway with a recent report is active"}
		}
		out = slices.Concat(out, stale, missing)
	}
	if len(out) > 0 || down {
		return out, nil
	}
	endpoints := &submarinerv1.EndpointList{}
	if err := j.Broker.List(ctx, endpoints, client.InNamespace(j.publishedIn())); err != nil {
		return nil, fmt.Errorf("listing endpoints on the broker: %w", err)
	}
	return j.unannounced(exchange.InClusters(endpoints.Items)), nil
}

// unannounced returns a line if no gateway has published an endpoint on the broker, or none that
// announces the networks of the plan. Until then, the others reach the networks that the cluster
// had before, if any.
func (j *Operation) unannounced(endpoints []submarinerv1.Endpoint) []string {
	what := "endpoint"
	for _, e := range endpoints {
		if e.Spec.ClusterID != j.Plan.Submariner.Spec.ClusterID {
			continue
		}
		what = "networks"
		announced, err := cable.ParseCIDRs("network", e.Spec.Subnets)
		slices.SortFunc(announced, netip.Prefix.Compare)
		if err == nil && slices.Equal(slices.Compact(announced), j.Plan.Grant.Networks) {
			return nil
		}
	}
	return []string{
		fmt.Sprintf("the gateway has not published its %s on the broker yet: see kubectl logs -n %s -l app=%s", what,
			cluster.Namespace, cluster.GatewayName),
	}
}

// publishedIn returns the namespace of one of the clustersets of the cluster. Its gateway publishes
// the same in all of them.
func (j *Operation) publishedIn() string {
	base := j.Plan.Submariner.Spec.BrokerK8sRemoteNamespace
	if len(j.Plan.Grant.Sets) == 0 {
		return base
	}
	return broker.NamespaceIn(base, j.Plan.Grant.Sets[0])
}

// unpublished returns a line if the gateway has not published the new key of the cluster on the
// broker yet. Until then, its connections are the ones that it had before.
func (j *Operation) unpublished(ctx context.Context) ([]string, error) {
	if j.renewed == "" {
		return nil, nil
	}
	clusters := &submarinerv1.ClusterList{}
	if err := j.Broker.List(ctx, clusters, client.InNamespace(j.publishedIn())); err != nil {
		return nil, fmt.Errorf("listing clusters on the broker: %w", err)
	}
	self := j.Plan.Submariner.Spec.ClusterID
	if slices.ContainsFunc(clusters.Items,
		func(c submarinerv1.Cluster) bool { return c.Spec.ClusterID == self && c.Spec.PublicKey == j.renewed }) {
		return nil, nil
	}
	return []string{
		fmt.Sprintf(
			"the gateway has not published the new key of this cluster on the broker yet: see kubectl logs -n %s -l app=%s",
			cluster.Namespace, cluster.GatewayName),
	}, nil
}

// reporting returns the gateways whose reports are recent, and a line for each of the others: what
// it has reported is from before it failed.
func reporting(gateways []submarinerv1.Gateway, now time.Time) (current []submarinerv1.Gateway, stale []string) {
	for _, g := range gateways {
		if why := look.Stale(g, now); why != "" {
			stale = append(stale, fmt.Sprintf("gateway %s: %s", g.Name, why))
		} else {
			current = append(current, g)
		}
	}
	return current, stale
}

func active(g submarinerv1.Gateway) bool { return g.Status.HAStatus == submarinerv1.HAStatusActive }

// inactiveGateways returns a line for each gateway that is not active.
func inactiveGateways(gateways []submarinerv1.Gateway) (out []string) {
	for _, g := range gateways {
		if !active(g) {
			out = append(out, fmt.Sprintf("gateway %s is not active yet", g.Name))
		}
	}
	return out
}

// pinged reports whether a connection counts only when a ping has been answered: before the first
// ping, a gateway takes a new cable for connected, but without global addresses no packet of the
// cluster is answered.
func (j *Operation) pinged() bool {
	check := j.Plan.Submariner.Spec.ConnectionHealthCheck
	return j.Plan.Submariner.Spec.GlobalCIDR != "" && check != nil && check.Enabled
}

// unconnected returns the members to which no active gateway is connected, or an active one not
// by the cable that a change specifies, one line each.
func unconnected(
	gateways []submarinerv1.Gateway, members []string, changes []impact.CableChange, pinged bool,
) []string {
	if !slices.ContainsFunc(gateways, active) {
		return []string{"no gateway is active yet"}
	}
	state := map[string]string{} // by cluster; empty: connected
	var failures []string
	for _, g := range gateways {
		if !active(g) {
			continue
		}
		if g.Status.StatusFailure != "" {
			failures = append(failures, fmt.Sprintf("gateway %s: %s", g.Name, g.Status.StatusFailure))
		}
		if c := meta.FindStatusCondition(g.Status.Conditions, submarinerv1.ConditionBrokerSynced); c != nil &&
			c.Status == metav1.ConditionFalse {
			failures = append(failures,
				fmt.Sprintf("gateway %s: %s", g.Name, strings.ReplaceAll(c.Message, "\n", "; ")))
		}
		for _, c := range g.Status.Connections {
			was, known := state[c.Endpoint.ClusterID]
			if known && was == "" {
				continue
			}
			text := ""
			if c.Status != submarinerv1.Connected {
				text = strings.TrimSuffix(fmt.Sprintf("%s: %s", c.Status, c.StatusMessage), ": ")
			} else if pinged && c.LatencyRTT == nil && c.StatusMessage == "" { // a message tells why it is not probed
				text = "no ping has been answered yet"
			}
			state[c.Endpoint.ClusterID] = text
		}
	}
	var out []string
	for _, m := range members {
		if text, known := state[m]; !known {
			out = append(out, fmt.Sprintf("cluster %q: not connected: the gateway has not read its endpoint yet", m))
		} else if text != "" {
			out = append(out, fmt.Sprintf("cluster %q: %s", m, text))
		} else if why := whyOldCable(gateways, m, changes); why != "" {
			out = append(out, fmt.Sprintf("cluster %q: %s", m, why))
		}
	}
	if len(out) == 0 {
		return nil
	}
	slices.Sort(failures)
	return append(out, failures...)
}

// whyOldCable returns the reason why an active gateway does not use the cable to a member that a
// change specifies; empty if none of the changes is about the member.
func whyOldCable(gateways []submarinerv1.Gateway, member string, changes []impact.CableChange) string {
	for _, x := range changes {
		if x.Pair.X.ID != member && x.Pair.Y.ID != member {
			continue
		}
		for _, g := range gateways {
			if !active(g) {
				continue
			}
			if why := catalog.Unreached(g, member, x.Then); why != "" {
				return why
			}
		}
	}
	return ""
}

// incomplete returns what the gateways that this join makes still lack, one line each: a report,
// and, where they are active, a connection to every member. gateways are those with a recent
// report.
func (j *Operation) incomplete(gateways []submarinerv1.Gateway, skipped []string) (out []string) {
	for _, node := range j.Plan.Gateways {
		if slices.Contains(skipped, node) {
			continue
		}
		at := slices.IndexFunc(gateways, func(g submarinerv1.Gateway) bool { return g.Name == node })
		switch {
		case at < 0:
			out = append(out, fmt.Sprintf("gateway %s has not reported yet", node))
		case active(gateways[at]):
			for _, member := range j.Plan.Present {
				if why := whyNotConnected(gateways, gateways[at], member); why != "" {
					out = append(out, fmt.Sprintf("gateway %s: %s", node, why))
				}
			}
		}
	}
	return out
}

// whyNotConnected returns why an active gateway is not connected to a member; empty if it is, or if
// its driver connects only some gateways of a cluster, and another one is connected.
func whyNotConnected(gateways []submarinerv1.Gateway, g submarinerv1.Gateway, member string) string {
	why := whyNotConnectedBy(g, member)
	if why == "" {
		return ""
	}
	for _, c := range g.Status.Connections {
		d := drivers.Find(catalog.CableDriver(c))
		limited := c.Endpoint.ClusterID == member && d != nil && d.Properties().MaxGateways > 0
		if limited && slices.ContainsFunc(gateways, func(other submarinerv1.Gateway) bool {
			return active(other) && whyNotConnectedBy(other, member) == ""
		}) {
			return ""
		}
	}
	return why
}

// whyNotConnectedBy returns why a gateway is not connected to a member; empty if it has a
// connection to one of the member's gateways.
func whyNotConnectedBy(g submarinerv1.Gateway, member string) string {
	why := fmt.Sprintf("no connection to cluster %q yet", member)
	for _, c := range g.Status.Connections {
		switch {
		case c.Endpoint.ClusterID != member:
		case c.Status == submarinerv1.Connected:
			return ""
		default:
			why = fmt.Sprintf("cluster %q: %s", member, c.Status)
		}
	}
	return why
}
