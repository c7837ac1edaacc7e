//go:build linux

package kernel

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func made(id, spis string, age time.Duration, child string) ikeSA {
	sa := ikeSA{id: id, spis: spis, state: "ESTABLISHED", age: age}
	if child != "" {
		sa.children = []childSA{{name: child, up: true}}
	}
	return sa
}

func TestOutdated(t *testing.T) {
	rekeyed := made("1", "a", time.Hour, "")
	rekeyed.state = "REKEYED"
	for name, test := range map[string]struct {
		sas  []ikeSA
		want []string
	}{
		"nothing":                                     {nil, nil},
		"one":                                         {[]ikeSA{made("1", "a", time.Hour, "new")}, nil},
		"only old ones carry the traffic":             {[]ikeSA{made("1", "a", time.Hour, "old"), made("2", "b", time.Minute, "")}, nil},
		"a new one takes their place":                 {[]ikeSA{made("1", "a", time.Hour, "old"), made("2", "b", 0, "new"), made("3", "c", time.Hour, "")}, []string{"1", "3"}},
		"two at once, which may be made still":        {[]ikeSA{made("1", "a", time.Hour, "new"), made("2", "b", time.Second, "new")}, nil},
		"two at once, for good":                       {[]ikeSA{made("1", "a", time.Minute, "new"), made("2", "b", time.Minute, "new")}, []string{"1"}},
		"the same two, as the other end lists them":   {[]ikeSA{made("7", "b", time.Minute, "new"), made("8", "a", time.Minute, "new")}, []string{"8"}},
		"one whose successor charon has made already": {[]ikeSA{rekeyed, made("2", "b", 0, "new")}, nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, outdated(test.sas, "new")) })
	}
}

// The keeper begins what is down, each end at its time, and forgets what is no longer planned.
func TestKeeperJudges(t *testing.T) {
	k := &keeper{waits: map[string]*wait{}, problems: map[string]string{"": "x", "gone": "x", "up": "x", "down": "x"}}
	conns := map[string]loaded{"up": {child: "first-1"}, "down": {child: "first-2"}, "late": {child: "second-3"}, "passive": {child: "never-4"}}
	sas := map[string][]ikeSA{"up": {made("1", "a", 0, "first-1")}, "down": {made("2", "b", 0, "first-old")}}
	now := time.Now()
	begin, end, well := k.judge(conns, sas, now)
	require.Equal(t, []string{"down"}, begin)
	require.Empty(t, end, "old keys carry the traffic")
	require.False(t, well)
	require.Equal(t, map[string]string{"down": "x"}, k.problems)

	begin, _, _ = k.judge(conns, sas, now.Add(time.Millisecond))
	require.Empty(t, begin)
	begin, _, _ = k.judge(conns, sas, now.Add(secondAfter))
	require.ElementsMatch(t, []string{"down", "late"}, begin)

	sas["down"] = append(sas["down"], made("3", "c", 0, "first-2"))
	delete(conns, "late")
	_, end, well = k.judge(conns, sas, now)
	require.Equal(t, []string{"2"}, end)
	require.False(t, well, "it is to be seen that it ends")
	require.Empty(t, k.waits)
	sas["down"] = sas["down"][1:]
	_, end, well = k.judge(conns, sas, now)
	require.Empty(t, end)
	require.True(t, well)
}

// What charon logs of a tunnel that does not come up is told people; what else it logs is not.
func TestComplaint(t *testing.T) {
	for log, want := range map[string]string{
		"received AUTHENTICATION_FAILED notify error":                               "AUTHENTICATION_FAILED",
		"tried 1 shared key for 'gw1' - 'gw2', but MAC mismatched":                  "AUTHENTICATION_FAILED",
		"no shared key found for 'gw1' - 'gw3'":                                     "no key for",
		"received NO_PROPOSAL_CHOSEN notify, no CHILD_SA built":                     "espProposals",
		"no acceptable proposal found":                                              "espProposals",
		"unable to install inbound and outbound IPsec SA (SAD) in kernel":           "cannot encrypt",
		"received TS_UNACCEPTABLE notify, no CHILD_SA built":                        "other networks",
		"giving up after 6 retransmits":                                             "no answer",
		"IKE_SA to-gw2[1] established between 192.0.2.1[gw1]...192.0.2.2[gw2]":      "",
		"closing IKE_SA due CHILD_SA setup failure":                                 "",
		"received DELETE for IKE_SA to-gw2[2]":                                      "",
		"sending keep alive to 192.0.2.2[4500], after it has been silent for a bit": "",
	} {
		got := complaint(log)
		require.Contains(t, got, want, log)
		require.Equal(t, want == "", got == "", log)
	}
}
