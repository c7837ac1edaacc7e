package cmd

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/broker/trust"
)

// ago returns a time before now, in the form of serials and sequence numbers.
func ago(d time.Duration) int64 { return now.Add(-d).UnixMilli() }

// grantFor returns what a cluster may be.
func grantFor(id string, serial int64) trust.Grant {
	return trust.Grant{
		Cluster:  id,
		Key:      brokertest.Key(id).Public(),
		Networks: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/15"), netip.MustParsePrefix("100.65.0.0/16")},
		Gateways: 16,
		Sets:     []string{"blue", "default"},
		Serial:   serial,
	}
}

// invitedGrant returns a grant that was signed with an invitation of that age. Its holder has
// chosen another date.
func invitedGrant(t *testing.T, id string, invited, claimed time.Duration) string {
	t.Helper()
	key := brokertest.Key("invitation of " + id)
	invitation, err := brokertest.Administrator().SignInvitation(trust.Invitation{
		Key:      key.Public(),
		Cluster:  id,
		Gateways: 2,
		Sets:     []string{"default"},
		Serial:   ago(invited),
		Expires:  now.Add(time.Hour).UnixMilli(),
	})
	require.NoError(t, err)
	g := grantFor(id, ago(claimed))
	g.Gateways = 2
	g.Sets = []string{"default"}
	token, err := key.SignInvitedGrant(g, invitation)
	require.NoError(t, err)
	_, err = brokertest.Administrator().Public().Grant(token)
	require.NoError(t, err, "it counts")
	return token
}

// grantedCluster returns a Cluster that arrived and was signed at these ages, with a grant.
func grantedCluster(namespace, id string, arrived, signed time.Duration, grant string) client.Object {
	c := member(namespace, id, "172.18.0.9", "vxlan", nil)[0].(*submarinerv1.Cluster)
	c.CreationTimestamp = metav1.NewTime(now.Add(-arrived))
	brokertest.SignAt(c, "", ago(signed))
	brokertest.Annotate(c, submarinerv1.GrantAnnotation, grant)
	if namespace == submarinerv1.OperatorNamespace { // a copy notes where it was found
		brokertest.Annotate(c, submarinerv1.ClusterSetsAnnotation, submarinerv1.DefaultClusterSet)
	}
	return c
}

// The dates in the table come from the administrator and from the API server: a cluster that was
// invited cannot choose them. The cluster itself is in the list.
func TestShowTrust(t *testing.T) {
	const ours, hub, day = submarinerv1.OperatorNamespace, submarinerv1.BrokerNamespace, 24 * time.Hour
	west := submariner("west")
	west.CreationTimestamp = metav1.NewTime(now.Add(-30 * day))
	west.Annotations = map[string]string{
		submarinerv1.GrantAnnotation: brokertest.Granted(grantFor("west", ago(29*day))),
	}
	own := member(ours, "west", "172.18.0.2", "vxlan", nil)[0]
	own.SetLabels(nil)
	refusing := gateway("west", "gw-1", time.Second)
	refusing.Status.Conditions = []metav1.Condition{{
		Type:    role.ConditionRefused,
		Status:  metav1.ConditionTrue,
		Reason:  "Refused",
		Message: "Endpoint east-submariner-cable-east-172-18-0-9 of the broker: network 1.1.1.1/32 is not in the grant of cluster east",
	}}
	invited := invitedGrant(t, "north", 2*day, -59*time.Minute) // it claims a date that is still to come
	unknown := brokertest.Key("somebody")
	forged, err := unknown.SignGrant(grantFor("south", ago(day)))
	require.NoError(t, err)
	swapped := brokertest.Granted(grantFor("east", ago(day)))

	memory := exchange.NewMemory(ours)
	memory.Data = map[string]string{
		"memory.json": fmt.Sprintf(
			`{"clusters":{"gone":{"serial":%d,"left":%d},"lost":{"revoked":%d},"back":{"serial":%[3]d,"revoked":%[1]d},"east":{"serial":1,"left":2}}}`,
			ago(9*day), ago(2*day), ago(3*day)),
	}
	leaving, err := brokertest.Key("gone").SignLeaving(brokertest.Granted(grantFor("gone", ago(9*day))), ago(2*day))
	require.NoError(t, err)
	revocation, err := brokertest.Administrator().SignRevocation(
		trust.Revocation{Cluster: "lost", Serial: ago(3 * day)})
	require.NoError(t, err)

	joined := []client.Object{
		west, own, gateway("west", "gw-1", time.Second),
		grantedCluster(ours, "east", 20*day, 25*time.Minute, brokertest.Granted(grantFor("east", ago(10*day)))),
		grantedCluster(ours, "north", day, 40*time.Second, invited), memory,
	}
	broker := &v1alpha1.Broker{
		ObjectMeta: metav1.ObjectMeta{Name: "submariner-broker", Namespace: hub, Annotations: map[string]string{
			broker.AdministratorAnnotation: brokertest.Administrator().Public().String(),
		}},
	}
	onBroker := append(brokerMembers()[:2], broker,
		grantedCluster(hub, "east", 20*day, 25*time.Minute, brokertest.Granted(grantFor("east", ago(10*day)))),
		grantedCluster(hub, "north", day, 40*time.Second, invited),
		grantedCluster(hub, "south", day, time.Minute, forged), grantedCluster(hub, "swap", day, time.Minute, swapped),
		member(hub, "without", "172.18.0.7", "vxlan", nil)[0], exchange.Left(hub, "gone", leaving),
		exchange.Revoked(hub, "lost", revocation), exchange.Left(hub, "forged", revocation))
	remembers := func(grantedAt time.Duration) client.Object { // that west has left a day ago, with a grant of that age
		memory := exchange.NewMemory(ours)
		memory.Data = map[string]string{
			"memory.json": fmt.Sprintf(`{"clusters":{"west":{"serial":%d,"left":%d}}}`, ago(grantedAt), ago(day)),
		}
		return memory
	}
	for name, c := range map[string]struct {
		objects []client.Object
		args    []string
	}{
		"trust_left":            {append(joined[:3:3], remembers(29*day)), []string{"show", "trust"}},
		"trust_joined_again":    {append(joined[:3:3], remembers(30*day)), []string{"show", "trust"}},
		"trust_joined":          {joined, []string{"show", "trust"}},
		"trust_joined_-o_json":  {joined, []string{"show", "trust", "-o", "json"}},
		"trust_refusing":        {append(joined[:2:2], refusing), []string{"show", "trust"}},
		"trust_broker":          {onBroker, []string{"show", "trust"}},
		"trust_broker_-o_json":  {onBroker, []string{"show", "trust", "-o", "json"}},
		"trust_nothing_granted": {knownClusters(), []string{"show", "trust"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := c.objects
			if name == "trust_nothing_granted" {
				objects = append(objects, submariner("west"))
			}
			golden(t, "show/"+name, runIn(t, world{"west": objects}, []string{"west"}, c.args...))
		})
	}
}
