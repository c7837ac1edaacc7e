package broker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"k8s.io/client-go/rest"
)

// Set is a clusterset on a broker.
type Set struct {
	Name      string // "default"
	Namespace string // "submariner-k8s-broker"
}

// SyncerConfig is what a Syncer works on.
type SyncerConfig struct {
	ClusterID string
	Namespace string       // local: submariner-operator
	Local     *rest.Config // this cluster
	Broker    *rest.Config // see RESTConfig
	Sets      []Set        // the clustersets this cluster is in
	Log       *slog.Logger
}

// Syncer keeps Clusters and Endpoints the same here and on the broker: ours go
// there, those of other clusters come here.
type Syncer struct {
	config SyncerConfig
}

// NewSyncer returns a Syncer that does nothing until Run.
func NewSyncer(c SyncerConfig) *Syncer { return &Syncer{config: c} }

// Run syncs until ctx is done, which is no error. A broker that cannot be
// reached changes nothing here and is waited for.
func (s *Syncer) Run(ctx context.Context) error { return errors.ErrUnsupported }

// Healthy returns nil while both sides are watched and the last sync left
// nothing undone, and what is wrong otherwise.
func (s *Syncer) Healthy() error { return errors.ErrUnsupported }

// Status returns what the sync is doing. It is safe for concurrent use.
func (s *Syncer) Status() SyncStatus { return SyncStatus{} }

// SyncStatus is the state of a Syncer, for status and metrics.
type SyncStatus struct {
	// Connected says that every clusterset on the broker is being watched.
	Connected bool
	// LastSync is when both sides were last the same, zero if never.
	LastSync time.Time
	// Writes counts the objects written or deleted on either side.
	Writes uint64
	// Refused lists objects that are not copied, sorted.
	Refused []Refusal
	// Errors lists what is wrong now: unreachable sides and failed writes, sorted.
	Errors []string
}

// Refusal says why an object is not copied.
type Refusal struct {
	Kind      string // Cluster or Endpoint
	Namespace string
	Name      string
	Local     bool // found in this cluster, not on the broker
	Reason    string
}
