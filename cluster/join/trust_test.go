package join

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/trust"
	"subctl/cluster"
)

// A cluster keeps its key as long as it is a member, and its grant as long as it is the planned one.
func TestTrustOfAJoin(t *testing.T) {
	administrator, noon := brokertest.Key("administrator"), time.UnixMilli(1_000_000)
	j := &Operation{
		File: &broker.JoinFile{SigningKey: administrator, Administrator: administrator.Public()},
		Plan: &Plan{Grant: trust.Grant{Cluster: "west", Gateways: 1}, Granted: []Change{{Field: "all"}}},
	}
	first, err := j.trust(true, noon)
	require.NoError(t, err)
	require.Equal(t, administrator.Public(), first.Administrator)
	grant, err := administrator.Public().Grant(first.Grant)
	require.NoError(t, err)
	require.Equal(t, trust.Grant{Cluster: "west", Gateways: 1, Key: first.Key.Public(), Serial: 1_000_000}, grant)

	j.Plan.Trust, j.Plan.Granted = &first, nil
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
		require.Equal(t, serial.added, first.Key.Public() != renewed.Key.Public(), "%s: a new member has a new key", name)
		grant, err := administrator.Public().Grant(renewed.Grant)
		require.NoError(t, err, name)
		require.Equal(t, serial.want, grant.Serial, name)
	}

	t.Log("the other clusters would refuse a grant of an earlier invitation")
	invitee := brokertest.Key("invitee")
	invitation, err := administrator.SignInvitation(trust.Invitation{
		Key: invitee.Public(), Cluster: "west", Gateways: 1, Serial: 999_999, Expires: 9_000_000,
	})
	require.NoError(t, err)
	file := j.File
	j.File = &broker.JoinFile{SigningKey: invitee, Administrator: administrator.Public(), Invitation: invitation}
	_, err = j.trust(true, noon.Add(time.Second))
	require.ErrorContains(t, err, "the join file is of 1970-01-01T00:16:39Z, and this cluster has a later grant, of 1970-01-01T00:16:40Z")
	j.File = file

	t.Log("what the file may not sign is not installed")
	j.Plan.Trust = &cluster.Trust{Key: first.Key, Administrator: brokertest.Key("other").Public(), Grant: first.Grant}
	_, err = j.trust(true, noon)
	require.ErrorContains(t, err, "signing the grant of cluster west with the key of the join file: its grant is not valid: it was altered, or signed with another key")
}
