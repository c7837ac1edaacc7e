package parts

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/cluster"
	"subctl/internal/alarm"
	"subctl/internal/wake"
)

// agentsEvery is how often a gateway looks for agents that do not run. An agent that restarts is
// back before the second look.
const agentsEvery = 15 * time.Second

// agents finds which other agents of this cluster do not run, while this gateway is active. It
// announces them to other clusters, which would blame the network.
type agents struct {
	apps    appsclient.AppsV1Interface
	log     *slog.Logger
	trigger func()

	mu         sync.Mutex
	active     bool
	seen       string // in the last look
	notRunning string // in the last two looks
	failed     alarm.Alarm
}

func newAgents(o Options) (*agents, error) {
	c, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return nil, err
	}
	return &agents{apps: c.AppsV1(), log: o.Log, trigger: o.Trigger}, nil
}

// Observe implements Observer.
func (a *agents) Observe(s *role.Snapshot) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active = s.Standing.Active
	s.NotRunning = a.notRunning
	return nil
}

// Start looks for agents that do not run until ctx is done.
func (a *agents) Start(ctx context.Context) error {
	wake.Every(ctx, agentsEvery, nil, func() { a.refresh(ctx) })
	return nil
}

// refresh looks once. What two looks in a row find is announced; if a look fails, nothing changes.
func (a *agents) refresh(ctx context.Context) {
	a.mu.Lock()
	active := a.active
	a.mu.Unlock()
	if !active {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpFor)
	defer cancel()
	found, err := a.findNotRunning(ctx)
	a.failed.Report(a.log, slog.LevelWarn, "looking for agents of this cluster that do not run", err)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	twice := found == a.seen || found == ""
	a.seen = found
	if twice && a.notRunning != found {
		a.notRunning = found
		a.trigger()
	}
}

// findNotRunning returns the agents that do not run, as text without numbers, which would change
// with every node of an upgrade.
func (a *agents) findNotRunning(ctx context.Context) (string, error) {
	var out []string
	d, err := a.apps.Deployments(submarinerv1.OperatorNamespace).Get(ctx, cluster.GlobalnetName, metav1.GetOptions{})
	switch {
	case err == nil && d.Status.AvailableReplicas == 0:
		out = append(out, "the globalnet agent")
	case err != nil && !apierrors.IsNotFound(err): // without a global network there is none
		return "", fmt.Errorf("reading Deployment %s: %w", cluster.GlobalnetName, err)
	}
	ds, err := a.apps.DaemonSets(submarinerv1.OperatorNamespace).Get(ctx, cluster.RouteAgentName, metav1.GetOptions{})
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return "", fmt.Errorf("reading DaemonSet %s: %w", cluster.RouteAgentName, err)
	case err == nil && ds.Status.NumberUnavailable > 0:
		which := "some"
		if ds.Status.NumberAvailable == 0 {
			which = "all"
		}
		out = append(out, "the route agents of "+which+" nodes")
	}
	return strings.Join(out, " and "), nil
}
