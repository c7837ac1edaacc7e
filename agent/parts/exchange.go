package parts

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/mesh/members"
	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/exchange"
	"subctl/cluster"
	"subctl/internal/alarm"
	"subctl/internal/proxy"
	"subctl/internal/wake"
)

// The time after which an exchange that could not be set up is tried again, at first and at last.
const (
	exchangeRetry        = time.Second
	slowestExchangeRetry = 16 * time.Second
)

// exchanger exchanges objects with the broker while this gateway is the speaker. It
// follows the snapshots of the loop: when the speaker changes, or the Submariner object
// names another broker, the exchange stops, or starts anew. The
// files with the credentials are read again by each connection, and those with the keys by each
// pass.
//
// Traffic does not need the broker, so nothing that goes wrong here stops the agent.
type exchanger struct {
	local   *rest.Config   // this cluster
	dir     string         // with the broker's credentials
	proxy   proxy.Settings // of the environment
	trust   string         // with the files of cluster.TrustSecret
	log     *slog.Logger
	warn    func(about client.Object, c metav1.Condition)
	trigger func() // the loop
	wake    wake.Signal
	make    func(exchange.Config) syncer

	mu      sync.Mutex
	target  *target // nil: nothing is to be exchanged
	stop    context.CancelFunc
	running syncer
	failed  string      // why it does not run
	fault   alarm.Alarm // the same, as it was logged
}

// syncer exchanges objects: an *exchange.Exchange.
type syncer interface {
	Run(context.Context) error
	Status() exchange.Status
}

// target is the broker to exchange with, and the settings of the exchange.
type target struct {
	clusterID string
	server    string // host:port of the broker's API server
	ca        string // Submariner.spec.brokerK8sCA
	name      string // in the broker's certificate
	insecure  bool
	proxy     proxy.Settings
	base      string // the broker's namespace
	from      v1alpha1.PoliciesFrom
}

func newExchanger(o Options) *exchanger {
	return &exchanger{
		local: o.Config, dir: o.BrokerDir, proxy: o.Proxy, trust: filepath.Join(o.Secrets, cluster.TrustSecret),
		log: o.Log, warn: o.Warn, trigger: o.Trigger, wake: wake.NewSignal(),
		make: func(c exchange.Config) syncer { return exchange.New(c) },
	}
}

// Observe implements Observer: it adds what the exchange has read, for what the snapshot
// specifies.
func (x *exchanger) Observe(s *role.Snapshot) error {
	t := x.targetOf(*s)
	x.mu.Lock()
	defer x.mu.Unlock()
	if t != nil && x.target != nil && x.running != nil && *t == *x.target {
		status := x.running.Status()
		s.PoliciesDigest = status.Digest
		s.ClusterSets = status.Sets
	}
	return nil
}

// Act implements Actor: it follows the election and the Submariner object, whether the
// rest of the snapshot has mistakes or not.
func (x *exchanger) Act(s role.Snapshot, _ role.Plan, out *role.Outcome) {
	x.follow(x.targetOf(s))
	out.Exchange = x.status()
}

// Idle implements Idler: a gateway whose node is no gateway node any more has left the lease, so
// another one exchanges.
func (x *exchanger) Idle(s role.Snapshot) {
	if members.LacksLabel(s) {
		x.follow(nil)
	}
}

// targetOf returns what a gateway is to exchange; nil if nothing.
func (x *exchanger) targetOf(s role.Snapshot) *target {
	subs := role.List[*v1alpha1.Submariner](s)
	if len(subs) == 0 || !s.Standing.Speaker {
		return nil
	}
	spec := subs[0].Spec
	t := &target{
		clusterID: spec.ClusterID, from: spec.PoliciesFrom, base: spec.BrokerK8sRemoteNamespace,
		server: spec.BrokerK8sApiServer, ca: spec.BrokerK8sCA, insecure: spec.BrokerK8sInsecure,
		name: spec.BrokerK8sTLSServerName,
	}
	if via, source := brokerProxy(s, spec, x.proxy, x.local.Host); via != nil {
		t.proxy = proxy.Settings{URL: via.String(), Always: true, Source: source}
	}
	return t
}

// follow makes Start work on a target from now on.
func (x *exchanger) follow(t *target) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t == nil && x.target == nil || t != nil && x.target != nil && *t == *x.target {
		return
	}
	x.target = t
	x.running = nil
	x.failed = ""
	if x.stop != nil {
		x.stop()
	}
	x.wake.Send()
}

// status returns the state of the exchange; nil if there is nothing to exchange.
func (x *exchanger) status() *role.ExchangeStatus {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.target == nil:
		return nil
	case x.failed != "":
		return &role.ExchangeStatus{Errors: []string{x.failed}, NotRead: true}
	case x.running == nil:
		return &role.ExchangeStatus{}
	}
	now := x.running.Status()
	if !now.Reading {
		x.reportFault(nil)
	}
	out := &role.ExchangeStatus{
		LastSync: now.LastSync, Errors: now.Errors, NotRead: now.NotRead, RefusedMore: now.RefusedMore,
	}
	if now.Reading {
		out.LastSync = time.Time{} // too early to tell
	}
	for _, r := range now.Refused {
		out.Refused = append(out.Refused, r.String())
	}
	return out
}

// Start exchanges objects until ctx is done.
func (x *exchanger) Start(ctx context.Context) error {
	pause := exchangeRetry
	for ctx.Err() == nil {
		x.mu.Lock()
		t := x.target
		running, stop := context.WithCancel(ctx)
		x.stop = stop
		x.mu.Unlock()
		if t == nil {
			select {
			case <-ctx.Done():
			case <-x.wake:
			}
		} else {
			began := time.Now()
			x.run(running, *t)
			if time.Since(began) > slowestExchangeRetry { // it has worked
				pause = exchangeRetry
			}
			if wake.After(running, pause) == nil {
				pause = min(2*pause, slowestExchangeRetry)
			} else { // there is something else to do
				pause = exchangeRetry
			}
		}
		stop()
	}
	return nil
}

// run exchanges objects until ctx is done, or notes why it cannot.
func (x *exchanger) run(ctx context.Context, t target) {
	remote, err := broker.RESTConfig(x.dir,
		broker.Access{Server: t.server, ServerName: t.name, Insecure: t.insecure, Proxy: t.proxy}, t.ca)
	if err == nil {
		s := x.make(exchange.Config{
			Kinds: exchange.KindsFrom(t.from), ClusterID: t.clusterID, Namespace: submarinerv1.OperatorNamespace,
			Local: x.local, Broker: remote, Identity: x.identity,
			Account:     types.NamespacedName{Namespace: t.base, Name: broker.MemberName(t.clusterID)},
			NamespaceOf: func(set string) string { return broker.NamespaceIn(t.base, set) },
			Log:         x.log, Complete: x.trigger, Warn: x.warn,
		})
		x.note(s, nil)
		err = s.Run(ctx)
	}
	if ctx.Err() != nil {
		err = nil
	}
	x.note(nil, err)
}

// identity reads what the cluster signs and verifies with. A change of the mounted Secret is
// followed.
func (x *exchanger) identity() (exchange.Identity, error) {
	data := map[string][]byte{}
	for _, key := range []string{cluster.KeySigning, cluster.KeyAdministrator, cluster.KeyGrant} {
		if b, err := os.ReadFile(filepath.Join(x.trust, key)); err == nil {
			data[key] = b
		} else if !errors.Is(err, fs.ErrNotExist) {
			return exchange.Identity{}, err
		}
	}
	t, err := cluster.ReadTrust(data)
	return exchange.Identity{Key: t.Key, Grant: t.Grant, Administrator: t.Administrator}, err
}

// note records what runs, or why nothing does.
func (x *exchanger) note(running syncer, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.running = running
	x.failed = ""
	if err != nil {
		x.failed = err.Error()
		x.reportFault(err)
	}
}

// reportFault logs why the exchange does not run or, if err is nil, that it runs again. The caller
// holds x.mu.
func (x *exchanger) reportFault(err error) {
	x.fault.Report(x.log, slog.LevelWarn, "exchange with the broker", err)
}
