package join

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/cluster"
	"subctl/cluster/clustertest"
)

// A cluster keeps its key as long as it is a member, and its grant as long as it is the planned
// one.
func TestTrustOfAJoin(t *testing.T) {
	administrator := brokertest.Key("administrator")
	noon := time.UnixMilli(1_000_000)
	j := &Operation{
		File: &broker.JoinFile{SigningKey: administrator, Administrator: administrator.Public()},
		Plan: &Plan{Grant: trust.Grant{Cluster: "west", Gateways: 1}, Granted: []Change{{Field: "all"}}},
	}
	first, err := j.trust(true, noon)
	require.NoError(t, err)
	require.Equal(t, administrator.Public(), first.Administrator)
	grant, err := administrator.Public().Grant(first.Grant)
	require.NoError(t, err)
	require.Equal(t, trust.Grant{Cluster: "west", Gateways: 1, Key: first.Key.Public(), Serial: 1_000_000, Whole: true},
		grant)

	j.Plan.Trust = &first
	j.Plan.Granted = nil
	again, err := j.trust(false, noon.Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, first, again)

	for name, serial := range map[string]struct {
		added   bool
		changed []Change
		now     time.Time
		want    int64
	}{
		"a new member":         {true, nil, noon.Add(time.Second), 1_001_000},
		"another plan":         {false, []Change{{Field: "networks"}}, noon.Add(time.Second), 1_001_000},
		"a clock that is slow": {true, nil, noon.Add(-time.Hour), 1_000_001},
	} {
		j.Plan.Granted = serial.changed
		renewed, err := j.trust(serial.added, serial.now)
		require.NoError(t, err, name)
		require.Equal(t, serial.added, first.Key.Public() != renewed.Key.Public(), "%s: a new member has a new key",
			name)
		grant, err := administrator.Public().Grant(renewed.Grant)
		require.NoError(t, err, name)
		require.Equal(t, serial.want, grant.Serial, name)
	}

	t.Log("the other clusters would refuse a grant that is not later than the one with which the cluster has left")
	j.Plan.Granted = nil
	j.Plan.Left = grant
	back, err := j.trust(false, noon.Add(-time.Hour))
	require.NoError(t, err)
	require.NotEqual(t, first.Key.Public(), back.Key.Public())
	later, err := administrator.Public().Grant(back.Grant)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_001, later.Serial)
	j.Plan.Trust = &back
	kept, err := j.trust(false, noon)
	require.NoError(t, err)
	require.Equal(t, back, kept, "it has not left with this one")
	j.Plan.Trust = nil
	j.Plan.Left = grant
	back, err = j.trust(true, noon.Add(-time.Hour))
	require.NoError(t, err)
	later, err = administrator.Public().Grant(back.Grant)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_001, later.Serial, "its Secret is gone")
	t.Log("who was invited dates its last grant later than all revocations to come")
	j.Plan.Left.Invited = 999_000
	j.Plan.Left.Serial = noon.Add(time.Hour).UnixMilli()
	back, err = j.trust(true, noon)
	require.NoError(t, err)
	later, err = administrator.Public().Grant(back.Grant)
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000, later.Serial, "of today")
	require.Positive(t, later.Compare(j.Plan.Left))
	t.Log("the clock of who has revoked the cluster, or removed it from a clusterset, was ahead")
	j.Plan.Trust = nil
	j.Plan.Left = trust.Grant{}
	j.Plan.Removed = noon.Add(time.Hour).UnixMilli()
	back, err = j.trust(true, noon)
	require.NoError(t, err)
	later, err = administrator.Public().Grant(back.Grant)
	require.NoError(t, err)
	require.Equal(t, j.Plan.Removed+1, later.Serial)
	j.Plan.Trust = &first
	j.Plan.Removed = 0

	t.Log("the other clusters would refuse a grant of an earlier invitation")
	invitee := brokertest.Key("invitee")
	invitation, err := administrator.SignInvitation(trust.Invitation{
		Key: invitee.Public(), Cluster: "west", Gateways: 1, Serial: 999_999, Expires: 9_000_000,
	})
	require.NoError(t, err)
	file := j.File
	j.File = &broker.JoinFile{SigningKey: invitee, Administrator: administrator.Public(), Invitation: invitation}
	_, err = j.trust(true, noon.Add(time.Second))
	require.ErrorContains(t, err,
		"the join file is of 1970-01-01T00:16:39Z, and this cluster has a later grant, of 1970-01-01T00:16:40Z")
	t.Log("the clock of who has invited the cluster was ahead")
	invitation, err = administrator.SignInvitation(trust.Invitation{
		Key: invitee.Public(), Cluster: "west", Gateways: 1, Serial: 5_000_000, Expires: 9_000_000,
	})
	require.NoError(t, err)
	j.File.Invitation = invitation
	back, err = j.trust(true, noon)
	require.NoError(t, err)
	later, err = administrator.Public().Grant(back.Grant)
	require.NoError(t, err)
	require.EqualValues(t, 5_000_000, later.Serial)
	j.File = file

	t.Log("what the file may not sign is not installed")
	j.Plan.Trust = &cluster.Trust{Key: first.Key, Administrator: brokertest.Key("other").Public(), Grant: first.Grant}
	_, err = j.trust(true, noon)
	require.ErrorContains(t, err,
		"signing the grant of cluster west with the key of the join file: its grant is not valid: it was altered, or signed with another key")
}

// A cluster that is a member keeps its key pair and its seed: the other clusters have derived their
// secrets from them. One that was revoked gets new ones: whoever has a copy could take its place.
func TestKeysOfAJoin(t *testing.T) {
	administrator := brokertest.Key("administrator")
	revocation := func(by trust.Key, id string) string {
		token, err := by.SignRevocation(trust.Revocation{Cluster: id, Serial: 1})
		require.NoError(t, err)
		return token
	}
	leaving := func(by trust.Key, id string) string {
		token, err := by.SignLeaving(brokertest.Granted(brokertest.Grant(id)), 1)
		require.NoError(t, err)
		return token
	}
	holder := &corev1.ServiceAccount{}
	for name, c := range map[string]struct {
		facts BrokerFacts
		want  bool
	}{
		"a member":      {BrokerFacts{Holder: holder}, false},
		"a new cluster": {BrokerFacts{}, true},
		"removed": {
			BrokerFacts{Revocations: []string{revocation(administrator, "west")}},
			true,
		},
		"removed, and an interrupted join": {
			BrokerFacts{Holder: holder, Revocations: []string{revocation(administrator, "west")}},
			true,
		},
		"what somebody else has signed": {
			BrokerFacts{Holder: holder, Revocations: []string{revocation(brokertest.Key("x"), "west")}},
			false,
		},
		"it has left": {
			BrokerFacts{Holder: holder, Leaving: leaving(brokertest.Key("west"), "west")},
			true,
		},
		"it has left, somebody else says": {
			BrokerFacts{Holder: holder, Leaving: leaving(brokertest.Key("east"), "west")},
			false,
		},
		"another has left": {
			BrokerFacts{Holder: holder, Leaving: leaving(brokertest.Key("east"), "east")},
			false,
		},
		"the removal of another": {
			BrokerFacts{Holder: holder, Revocations: []string{revocation(administrator, "east")}},
			false,
		},
	} {
		c.facts.Broker = &v1alpha1.Broker{}
		c.facts.Version = "v1.36.3"
		c.facts.Sets = []string{"default"}
		holder.Annotations = map[string]string{broker.ClusterUIDAnnotation: "uid"}
		o := DefaultOptions()
		o.ClusterID = "west"
		o.ClusterCIDRs = []string{"10.1.0.0/16"}
		o.ServiceCIDRs = []string{"10.2.0.0/16"}
		file := &broker.JoinFile{
			BrokerURL:     "https://hub:6443",
			CA:            []byte("ca"),
			Namespace:     "b",
			SigningKey:    administrator,
			Administrator: administrator.Public(),
		}
		p, err := MakePlan(o, file,
			&Facts{Version: "v1.36.3", UID: "uid", Nodes: []corev1.Node{clustertest.Node("n1", "10.89.1.1")}}, &c.facts)
		require.NoError(t, err, name)
		require.Equal(t, c.want, p.NewKeys, name)
	}

	stored, err := newClusterKey()
	require.NoError(t, err)
	data := map[string][]byte{cluster.KeyPrivate: stored.Private.Bytes(), cluster.KeySeed: stored.Seed}
	c := fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.ClusterKeySecret}, Data: data,
	}).Build()
	kept, err := clusterKey(t.Context(), c, false)
	require.NoError(t, err)
	require.Equal(t, stored.Private.Public(), kept.Private.Public())
	require.True(t, bytes.Equal(stored.Seed, kept.Seed))
	renewed, err := clusterKey(t.Context(), c, true)
	require.NoError(t, err)
	require.NotEqual(t, stored.Private.Public(), renewed.Private.Public())
	require.False(t, bytes.Equal(stored.Seed, renewed.Seed))
}
