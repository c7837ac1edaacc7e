package parts

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	"subctl/api/submariner/v1alpha1"
	"subctl/cluster"
	"subctl/cluster/clusterdns"
	"subctl/internal/alarm"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// repairEvery is how often the agent looks whether the cluster's DNS still forwards names of
// imported Services. CoreDNS itself takes up to two minutes to read what has changed.
const repairEvery = time.Minute

// clusterDNS repairs the configuration of the cluster's DNS that join has changed.
type clusterDNS struct {
	repair func(ctx context.Context, address string) (repaired bool, err error)
	log    *slog.Logger
	wake   wake.Signal

	mu      sync.Mutex
	address string // empty: there is nothing to repair
	failed  alarm.Alarm
}

func newClusterDNS(o Options) (*clusterDNS, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	var c client.Client
	return &clusterDNS{
		log: o.Log, wake: wake.NewSignal(),
		repair: func(ctx context.Context, address string) (bool, error) {
			if c == nil { // not when it is constructed: it asks the API server
				if c, err = client.New(o.Config, client.Options{Scheme: scheme}); err != nil {
					return false, err
				}
			}
			return clusterdns.Repair(ctx, c, address)
		},
	}, nil
}

// Observe implements Observer.
func (d *clusterDNS) Observe(s *role.Snapshot) error {
	address := dnsToRepair(*s)
	d.mu.Lock()
	defer d.mu.Unlock()
	if address != d.address {
		d.address = address
		d.wake.Send()
	}
	return nil
}

// dnsToRepair returns the address to which the cluster's DNS must forward; empty if its
// configuration is not for the agent to repair.
func dnsToRepair(s role.Snapshot) string {
	for _, sub := range role.List[*v1alpha1.Submariner](s) {
		settings := sub.Spec.ServiceDiscovery
		if sub.Annotations[clusterdns.Annotation] != string(clusterdns.Corefile) || sub.DeletionTimestamp != nil ||
			!sub.Spec.ServiceDiscoveryEnabled || settings != nil && settings.LeaveDNS {
			return ""
		}
	}
	for _, v := range role.List[*corev1.Service](s) {
		if v.Namespace == cluster.Namespace && v.Name == cluster.DNSName && v.Spec.ClusterIP != corev1.ClusterIPNone {
			return v.Spec.ClusterIP
		}
	}
	return ""
}

// Start repairs until ctx is done.
func (d *clusterDNS) Start(ctx context.Context) error {
	wake.Every(ctx, repairEvery, d.wake, func() { d.refresh(ctx) })
	return nil
}

func (d *clusterDNS) refresh(ctx context.Context) {
	d.mu.Lock()
	address := d.address
	d.mu.Unlock()
	if address == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpFor)
	defer cancel()
	repaired, err := d.repair(ctx, address)
	d.failed.Report(d.log, slog.LevelWarn, "repairing the configuration of the cluster's DNS: join again", err)
	if repaired {
		d.log.Info("the cluster's DNS forwards names of imported Services again", "address", address)
	}
}
