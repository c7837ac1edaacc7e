package parts

import (
	"context"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	clusternetworks "subctl/cluster/networks"
	"subctl/internal/alarm"
	"subctl/internal/kube"
	"subctl/internal/wake"
)

// networksEvery is how often the speaker looks for new networks. They come with a new kind of
// object, or a change of the network plugin's: once in years.
const networksEvery = time.Minute

// networkWatch finds the networks that the cluster has got since it joined, while this gateway is
// the speaker.
type networkWatch struct {
	find    func(context.Context) (pods, services clusternetworks.Found, err error)
	log     *slog.Logger
	trigger func()
	wake    wake.Signal

	mu             sync.Mutex
	speaker        bool
	pods, services role.FoundNetworks
	failed         alarm.Alarm
}

func newNetworkWatch(o Options) (*networkWatch, error) {
	scheme, err := kube.NewScheme()
	if err != nil {
		return nil, err
	}
	w := &networkWatch{log: o.Log, trigger: o.Trigger, wake: wake.NewSignal()}
	var c client.Client
	w.find = func(ctx context.Context) (pods, services clusternetworks.Found, err error) {
		if c == nil { // not when it is constructed: it asks the API server
			if c, err = client.New(o.Config, client.Options{Scheme: scheme}); err != nil {
				return clusternetworks.Found{}, clusternetworks.Found{}, err
			}
		}
		return clusternetworks.Watched(ctx, c)
	}
	return w, nil
}

// Observe implements Observer.
func (w *networkWatch) Observe(s *role.Snapshot) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.Standing.Speaker && !w.speaker {
		w.wake.Send()
	}
	w.speaker = s.Standing.Speaker
	s.FoundPods = w.pods
	s.FoundServices = w.services
	return nil
}

// Start looks for networks until ctx is done.
func (w *networkWatch) Start(ctx context.Context) error {
	wake.Every(ctx, networksEvery, w.wake, func() { w.refresh(ctx) })
	return nil
}

// refresh looks once. If that fails, the networks that are known count.
func (w *networkWatch) refresh(ctx context.Context) {
	w.mu.Lock()
	speaker := w.speaker
	w.mu.Unlock()
	if !speaker {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpFor)
	defer cancel()
	pods, services, err := w.find(ctx)
	w.failed.Report(w.log, slog.LevelWarn, "looking for new networks of this cluster", err)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	was := []role.FoundNetworks{w.pods, w.services}
	w.pods = role.FoundNetworks{CIDRs: pods.CIDRs, From: pods.From}
	w.services = role.FoundNetworks{CIDRs: services.CIDRs, From: services.From}
	if !reflect.DeepEqual(was, []role.FoundNetworks{w.pods, w.services}) {
		w.trigger()
	}
}
