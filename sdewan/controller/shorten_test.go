package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "subctl/api/sdewan/v1alpha1"
	"subctl/sdewan"
	restclient "subctl/sdewan/rest/client"
	"subctl/sdewan/view"
)

func TestShortened(t *testing.T) {
	long, _ := json.Marshal(make([]byte, maxStatus))
	s := shortened(
		[]restclient.Module{{Name: "conntrack", Status: long}, {Name: "ipsec", Status: json.RawMessage(`{}`)}})
	require.Equal(t, `[{"name":"conntrack","status":"(too long)"},{"name":"ipsec","status":{}}]`, s)
	long = json.RawMessage("[" + strings.Repeat(`{"protocol":"tcp"},`, 9999) + "{}]")
	routes := json.RawMessage(`{"main":{"item":[` + strings.Repeat(`{},`, 7000) + `{}]},"41":{"item":[{}]}}`)
	s = shortened(
		[]restclient.Module{
			{Name: "conntrack", Status: long},
			{Name: "route", Status: routes},
			{Name: "neighbour", Status: routes},
		},
	)
	require.Equal(
		t,
		`[{"name":"conntrack","status":"(too long)","count":10000},{"name":"route","status":"(too long)","count":7002},`+
			`{"name":"neighbour","status":`+string(routes)+`}]`,
		s,
		"of what is left out, the number of entries remains",
	)
	require.LessOrEqual(t, len(shortened(make([]restclient.Module, maxStatus))), maxStatus)
}

// hub returns what a CNF of subctl reports that has tunnels to n edges, and 10,000 connections.
// change is made to each tunnel.
func hub(n int, change func(i int, detail, remote map[string]any)) []restclient.Module {
	var details, remotes []map[string]any
	for i := range n {
		name := fmt.Sprintf("edge-%d-of-the-north", i)
		detail := map[string]any{"connection": name + "-to-lan", "up": 1, "connecting": 0}
		remote := map[string]any{
			"name":      name,
			"state":     "ESTABLISHED",
			"local":     "192.0.2.10",
			"remote":    fmt.Sprint("198.51.100.", i%256),
			"local_id":  "hub.example.org",
			"remote_id": name + ".example.org",
			"seconds":   3600 + i,
			"leases":    []string{fmt.Sprintf("172.12.%d.%d", i/256, i%256)},
			"connections": []any{map[string]any{
				"name": "to-lan", "up": true, "seconds": 1800 - i, "bytes_in": 1 << i % 40, "bytes_out": 7 * i,
				"local_ts": []string{
					"10.30.0.0/24",
				}, "remote_ts": []string{fmt.Sprintf("172.12.%d.%d/32", i/256, i%256)},
			}},
		}
		if change != nil {
			change(i, detail, remote)
		}
		details = append(details, detail)
		remotes = append(remotes, remote)
	}
	tunnels, _ := json.Marshal(map[string]any{"InitConnection": "success", "details": details, "remotes": remotes})
	connections := json.RawMessage("[" + strings.Repeat(`{"protocol":"tcp"},`, 9999) + "{}]")
	return []restclient.Module{{Name: "ipsec", Status: tunnels}, {Name: "conntrack", Status: connections}}
}

// seen returns the row of a pod in subctl sdewan show status.
func seen(t *testing.T, modules []restclient.Module) view.PodStatus {
	t.Helper()
	s := batch.CNFStatus{
		ObjectMeta: metav1.ObjectMeta{
			Name:      "hub",
			Namespace: "site",
			Labels:    map[string]string{sdewan.PurposeLabel: "hub"},
		},
	}
	text := shortened(modules)
	for range sdewan.MaxPods {
		s.Status.Information = append(s.Status.Information, batch.CNFInformation{Name: "hub-a", Status: text})
	}
	b, err := json.Marshal(s)
	require.NoError(t, err)
	require.Less(t, len(b), 3<<19, "etcd has no room for objects of more than 1.5 MiB")
	return (&view.View{Statuses: []batch.CNFStatus{s}}).PodStatuses()[0]
}

// A hub with many tunnels, all of which are up, has no problem, and its numbers are known.
func TestManyTunnels(t *testing.T) {
	for _, n := range []int{1, 90, 500, 5000} {
		p := seen(t, hub(n, nil))
		require.Empty(t, p.Problems, n)
		require.Equal(t, n, p.TunnelCounts.Up, n)
		require.Equal(t, n, p.TunnelCounts.Established, n)
		require.Equal(t, n, p.TunnelCounts.Leases, n)
		require.Equal(t, "10000 or more", p.Number("conntrack", p.Connections))
	}
	require.Equal(t, "500 of 500 up", seen(t, hub(500, nil)).TunnelText())
}

// If there are many tunnels, the list begins with the tunnels that are not up, with reasons.
func TestManyTunnelsOneDown(t *testing.T) {
	one := seen(t, hub(500, func(i int, detail, remote map[string]any) {
		if i == 333 {
			detail["up"] = 0
			remote["state"] = ""
			remote["message"] = "the key differs"
			remote["connections"] = []any{map[string]any{"name": "to-lan", "up": false}}
		}
	}))
	require.Equal(t,
		[]string{"tunnel edge-333-of-the-north-to-lan is down", "tunnels of edge-333-of-the-north: the key differs"},
		one.Problems)
	require.Equal(t, "499 of 500 up, 1 down", one.TunnelText())
	require.Equal(t, "edge-333-of-the-north-to-lan down", one.Tunnels[0])
	require.Equal(t, []string{"conntrack", "ipsec"}, slices.Sorted(slices.Values(one.Cut)))

	all := seen(t, hub(500, func(_ int, detail, _ map[string]any) {
		detail["up"] = 0
		detail["connecting"] = "1"
	}))
	require.Equal(t, 500, all.TunnelCounts.Connecting)
	require.Equal(t, fmt.Sprint("tunnels that are connecting or down and not listed: ", 500-len(all.Tunnels)),
		all.Problems[len(all.Problems)-1])
}

// What is shown of many tunnels does not change with their counters, or the object would be written
// each time.
func TestManyTunnelsUnderTraffic(t *testing.T) {
	info := func(seconds int) batch.CNFInformation {
		return batch.CNFInformation{
			Status: shortened(hub(500, func(_ int, _, remote map[string]any) { remote["seconds"] = seconds })),
		}
	}
	require.True(t, sameButCounters(info(9), info(1000000)))
}

// Hubs on OpenWrt report tunnels only, with numbers as text.
func TestManyTunnelsOnOpenWrt(t *testing.T) {
	var details []string
	for i := range 2000 {
		details = append(details, fmt.Sprintf(`{"connection":"edge-%d","up":"%d","connecting":"0"}`, i, min(i, 1)))
	}
	p := seen(
		t,
		[]restclient.Module{
			{
				Name:   "ipsec",
				Status: json.RawMessage(`{"InitConnection":"success","details":[` + strings.Join(details, ",") + `]}`),
			},
		},
	)
	require.Equal(t, []string{"tunnel edge-0 is down"}, p.Problems)
	require.Equal(t, "1999 of 2000 up, 1 down", p.TunnelText())
}

// As many uplinks and objects without effect as there can be are shown, too.
func TestManyUplinksAndFaults(t *testing.T) {
	interfaces := map[string]any{}
	faults := []any{}
	for i := range 59 {
		track := slices.Repeat(
			[]any{map[string]any{"ip": "192.0.2.80", "status": "up", "latency": 12.345, "packetloss": 0}}, 16)
		interfaces[fmt.Sprint("net", i)] = map[string]any{"status": "online", "age": 7, "online": 7, "track_ip": track}
	}
	interfaces["net7"].(map[string]any)["status"] = "offline"
	for i := range 50 {
		faults = append(
			faults,
			map[string]any{
				"collection": "firewall/rules",
				"name":       strings.Repeat("n", 250),
				"reason":     strings.Repeat("<", 400) + fmt.Sprint(i),
			},
		)
	}
	wan, _ := json.Marshal(map[string]any{"interfaces": interfaces})
	effect, _ := json.Marshal(map[string]any{"applied": true, "no_effect": faults, "no_effect_count": 99})
	p := seen(
		t,
		append(hub(500, nil), restclient.Module{Name: "wan", Status: wan},
			restclient.Module{Name: "effect", Status: effect}),
	)
	require.Len(t, p.Uplinks, 59)
	require.Contains(t, p.Problems, "uplink net7 is offline")
	require.Equal(t, 500, p.TunnelCounts.Up)
	require.NotContains(t, strings.Join(p.Problems, "\n"), "too long")
	require.Contains(t, p.Problems[len(p.Problems)-1], "objects without effect that are not listed: 9")
}
