package role

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Paced is an object to apply that differs from the applied one only in what it reports about other
// clusters. These can change that as often as they like, so each of them makes an agent write it so
// many times only: see agent.pacer.
type Paced struct {
	Object Object
	By     []string // the clusters; empty text for all clusters together
}

const (
	Heartbeat = 5 * time.Second  // how often a Gateway is written at least (upstream)
	DeadAfter = 15 * time.Second // a Gateway that was not written for so long is dead (upstream)
)

// MaxWrites is the most objects that the globalnet agent writes in one loop: they take well less
// than the time that a loop has for its report. Loops follow each other until all are written.
const MaxWrites = 400

// ExchangeStatus is the state of the exchange with the broker.
type ExchangeStatus struct {
	LastSync    time.Time // when both sides were last seen to be the same; zero if never
	Errors      []string  // that exist now
	NotRead     bool      // they prevent that anything is read from the broker
	Refused     []string  // objects of other clusters that are not copied, with reasons
	RefusedMore int       // how many there are in addition to Refused
}

// Report is the desired state of objects on the API server.
type Report struct {
	// Apply are objects to apply, Delete are objects to delete.
	Apply, Delete []Object
	// Paced are objects to apply, unless other clusters have made the agent write them too often.
	Paced []Paced
	// Tolerant specifies that a write that the API server refuses is no fault of the loop: other
	// writes are made, and Snapshot.Refused has it.
	Tolerant bool
	// Status are objects whose status is applied, as far as it is set.
	Status []Object
	// UpdateStatus are objects whose status is replaced. An object that somebody else has changed
	// since it was read is left as it is: the change leads to another report.
	UpdateStatus []Object
	// More reports that there is more to write: the loop runs again at once.
	More bool
	// Again is the time after which there may be more to write, even if nothing changes; 0 for
	// never.
	Again time.Duration
	// Annotate are objects of users that have only the annotations that change, which are removed
	// if they are empty. All else of the objects stays as it is.
	Annotate []Object
	// Update are objects of users, or that users have labelled, with a change. An object that
	// somebody else has changed since it was read is not overwritten.
	Update []Object
	// Label are nodes that have only the labels and annotations that change, which are removed if
	// they are empty. All else of the nodes stays as it is.
	Label []Object
	// Warn are warnings about objects that have no condition for them. Each leads to one Event.
	Warn []Warning
}

// Warning is an Event about an object, with the type, the reason and the message of a condition.
type Warning struct {
	About     Object
	Condition metav1.Condition
}
