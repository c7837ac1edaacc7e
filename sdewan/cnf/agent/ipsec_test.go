package agent

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/dataplane"
)

func TestIPsecStatus(t *testing.T) {
	states := []dataplane.RemoteState{{
		Name:    "hub",
		State:   "ESTABLISHED",
		Local:   "192.0.2.2",
		Remote:  "192.0.2.1",
		Age:     time.Minute,
		Virtual: []string{"172.16.0.5"},
		Children: []dataplane.ChildState{
			{Name: "a", Up: true, In: 7, Out: 8},
			{Name: "b", Connecting: true},
			{Name: "c"},
		},
	}}
	b, err := json.Marshal(statusOf(states, map[string]bool{"hub-a": true, "hub-b": true}))
	require.NoError(t, err)
	require.JSONEq(
		t,
		`{"InitConnection":"success",
		"details":[{"connecting":0,"up":1,"connection":"hub-a"},{"connecting":1,"up":0,"connection":"hub-b"},{"connecting":0,"up":0,"connection":"hub-c","waiting":true}],
		"remotes":[{"name":"hub","state":"ESTABLISHED","local":"192.0.2.2","remote":"192.0.2.1","seconds":60,"virtual_ips":["172.16.0.5"],"connections":[
			{"name":"a","up":true,"seconds":0,"bytes_in":7,"bytes_out":8},{"name":"b","up":false,"seconds":0,"bytes_in":0,"bytes_out":0},{"name":"c","up":false,"seconds":0,"bytes_in":0,"bytes_out":0}]}]}`,
		string(b),
	)
	require.Equal(t, "fail", statusOf(states, map[string]bool{"hub-c": true}).InitConnection)
	require.False(t, statusOf(states, map[string]bool{"hub-c": true}).Details[2].Waiting,
		"this end should have begun it")
	require.Equal(t, "fail", statusOf(nil, map[string]bool{"hub-a": true}).InitConnection)
	require.Equal(t, "success", statusOf(nil, nil).InitConnection)
}
