package discoverer

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/services"
)

// Contact is what is known of this cluster's contact with the broker.
type Contact struct {
	known bool      // it was reported once
	lost  bool      // nothing is read
	since time.Time // lost has been as it is
}

// contactTime is the time after which the contact counts as lost, and as found again. API servers
// that start anew are back in less. When they are back, other clusters also need time to publish
// what has changed: they may wait 10 s until they try, and longer for a connection that was cut.
const contactTime = 30 * time.Second

// next returns what the contact is now for imports, what is known of it, and the time until that
// changes without news; 0 for never. While no gateway reports it, nothing changes.
func (c Contact) next(s role.Snapshot) (is services.Contact, out Contact, again time.Duration) {
	lost, known := brokerLost(s)
	if !known {
		return services.ContactUnknown, c, 0
	}
	if !c.known || lost != c.lost {
		c = Contact{known: true, lost: lost, since: s.Now}
	}
	switch left := contactTime - s.Now.Sub(c.since); {
	case left > 0:
		return services.ContactUnknown, c, left
	case lost:
		return services.ContactLost, c, 0
	}
	return services.ContactRead, c, 0
}

// brokerLost reports whether nothing is read from the broker, by the recent reports of gateways:
// the one that exchanges objects with it reports that. known is false if none does.
func brokerLost(s role.Snapshot) (lost, known bool) {
	for _, g := range role.List[*submarinerv1.Gateway](s) {
		c := meta.FindStatusCondition(g.Status.Conditions, submarinerv1.ConditionBrokerSynced)
		if c == nil || c.Reason == role.ReasonWaiting || !s.Reporting(g.Name) {
			continue
		}
		if c.Reason != submarinerv1.ReasonBrokerNotRead {
			return false, true
		}
		lost = true
		known = true
	}
	return lost, known
}

// keepContact keeps what a report of a gateway has of the broker.
func keepContact(slim, from *submarinerv1.Gateway) {
	if c := meta.FindStatusCondition(from.Status.Conditions, submarinerv1.ConditionBrokerSynced); c != nil {
		slim.Status.Conditions = []metav1.Condition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
	}
}

// soonest returns the shorter of two times, of which 0 stands for never.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return a + b
	}
	return min(a, b)
}
