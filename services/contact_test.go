package services

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"subctl/api/submariner/v1alpha1"
)

// After a while without contact with the broker, the address of a Service stands for its pods,
// until the broker is read again. Until it is known which of both is so, nothing changes.
func TestBrokerIsAway(t *testing.T) {
	pods := []string{podIP("west", 1) + " ready serving http=8080"}
	address := []string{serviceIP("west") + " ready serving http=80"}
	w := newWorld(t)
	w.export("west", webOf("west"))
	become := func(c Contact) []string {
		w.view.Contact = c
		w.settle()
		return w.endpoints("west")
	}
	require.Equal(t, pods, become(ContactUnknown), "what is new has its pods")
	require.Equal(t, pods, become(ContactRead))
	require.Equal(t, pods, become(ContactUnknown))
	require.Equal(t, address, become(ContactLost))
	uid := w.imported().UID
	require.Equal(t, address, become(ContactUnknown), "an agent that starts does not know")

	w.member("west").Unreachable = true
	w.export("north", webOf("north"))
	require.Equal(t, []string{serviceIP("west") + " http=80"}, become(ContactLost))
	require.Equal(t, []string{serviceIP("north") + " ready serving http=80"}, w.endpoints("north"))
	w.member("west").Unreachable = false
	w.leave("north")

	w.export("west", webOf("west", notReady))
	require.Equal(t, []string{serviceIP("west") + " http=80"}, become(ContactLost), "no pod was ready")
	w.export("west", webOf("west"))
	require.Equal(t, pods, become(ContactRead))
	require.Equal(t, uid, w.imported().UID)
}

// A Service with pods in several EndpointSlices has one with its address, and later its pods again.
func TestBrokerIsAwayFromManyPods(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west", func(r *v1alpha1.ExportedService) {
		other := v1alpha1.ExportedEndpoints{
			Targets: []int32{9090},
			Pods:    []v1alpha1.ExportedEndpoint{{IP: podIP("west", 2)}},
		}
		r.Endpoints = append(r.Endpoints, other)
	}))
	w.settle()
	require.Len(t, w.endpoints("west"), 2)
	w.view.Contact = ContactLost
	w.settle()
	require.Equal(t, []string{serviceIP("west") + " ready serving http=80"}, w.endpoints("west"))
	w.view.Contact = ContactRead
	w.settle()
	require.Len(t, w.endpoints("west"), 2)
}

// Pods stay where no address leads to them: of this cluster, of headless Services, and where the
// exporter uses only pods of the node that a connection comes to.
func TestPodsStayWhileTheBrokerIsAway(t *testing.T) {
	local := func(r *v1alpha1.ExportedService) {
		r.InternalTrafficPolicy = string(corev1.ServiceInternalTrafficPolicyLocal)
	}
	for name, change := range map[string]func(*v1alpha1.ExportedService){
		"headless":   asHeadless,
		"local":      local,
		"no address": func(r *v1alpha1.ExportedService) { r.Address = "" },
	} {
		w := newWorld(t)
		w.export("west", webOf("west", change))
		w.view.Contact = ContactLost
		w.settle()
		require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080"}, w.endpoints("west"), name)
	}
	w := newWorld(t)
	w.view.Own = []v1alpha1.ExportedService{webOf("east")}
	w.view.Contact = ContactLost
	w.settle()
	require.Equal(t, []string{podIP("east", 1) + " ready serving http=8080"}, w.endpoints("east"))
}

// While a page of a cluster is missing, what is known from it stays as it is.
func TestBrokerIsAwayAndAPageIsMissing(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.settle()
	w.publish("west", page("west", 0, 2))
	w.view.Contact = ContactLost
	w.settle()
	require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080"}, w.endpoints("west"))
}

// While nobody knows which clusters are reachable, those that were not are not used, and the others
// are.
func TestReachabilityIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.export("west", webOf("west"))
	w.export("north", webOf("north"))
	w.member("west").Unreachable = true
	w.settle()
	w.member("west").Unreachable = false
	for _, cluster := range []string{"west", "north"} {
		w.member(cluster).Unknown = true
	}
	w.settle()
	require.Equal(t, []string{podIP("west", 1) + " http=8080"}, w.endpoints("west"))
	require.Equal(t, []string{podIP("north", 1) + " ready serving http=8080"}, w.endpoints("north"))
	w.member("west").Unknown = false
	w.settle()
	require.Equal(t, []string{podIP("west", 1) + " ready serving http=8080"}, w.endpoints("west"))
}
