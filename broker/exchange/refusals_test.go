package exchange

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// A member that has all its objects in two clustersets refused, each time for another reason,
// neither fills the log of others nor hides which objects of other members are refused.
func TestHostileRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		e := &Exchange{config: Config{Log: slog.New(slog.NewTextHandler(log, nil))}}
		unsigned := westEndpoint(t, 1, "")
		unsigned.Name = strings.ReplaceAll(unsigned.Name, "west", "north")
		unsigned.Labels[submarinerv1.ClusterIDLabel] = "north"
		unsigned.Spec.ClusterID = "north"
		unsigned.Spec.CableName = "submariner-cable-north-1"
		const passes, pause = 60, 10 * time.Second
		for n := range passes {
			theirs := []client.Object{memberCluster(t, "west"), memberCluster(t, "north"), unsigned}
			_, refused := planned(t, Snapshot{ClusterID: "hub", Namespace: "here", Sets: []SetSnapshot{
				{
					Set:     Set{Name: "default", Namespace: "hub"},
					Known:   true,
					Objects: append(theirs, signedFor(t, fmt.Sprint("set-", n))...),
				},
				{
					Set:     Set{Name: "lab", Namespace: "hub-lab"},
					Known:   true,
					Objects: append([]client.Object{memberCluster(t, "west")}, signedFor(t, fmt.Sprint("set-", n))...),
				},
			}})
			first, more := fairSelection(refused)
			require.Greater(t, more, 10)
			require.True(t, slices.ContainsFunc(first, func(r Refusal) bool { return r.Name == unsigned.Name }),
				"what north has is displaced")
			e.report(Status{Refused: first, RefusedMore: more})
			time.Sleep(pause)
		}
		require.Equal(t, 1, strings.Count(log.String(), unsigned.Name))
		lines := strings.Count(log.String(), "not synced")
		require.GreaterOrEqual(t, lines, logBurst)
		require.LessOrEqual(t, lines, 1+logBurst+int(passes*pause/logEvery)+1)
		e.report(Status{})
		time.Sleep(time.Hour)
		e.report(Status{})
		require.Empty(t, e.logged.limiters, "what is as new is forgotten")
	})
}

// signedFor returns as many policies as a member has, each signed for a clusterset.
func signedFor(t *testing.T, set string) (out []client.Object) {
	t.Helper()
	for i := range cablePolicies().PerCluster {
		p := &v1alpha1.CablePolicies{
			ObjectMeta: metav1.ObjectMeta{
				Name:      fmt.Sprint("p-", i),
				Namespace: "hub",
				Labels:    map[string]string{submarinerv1.ClusterIDLabel: "west"},
			},
			ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "wireguard"}},
		}
		require.NoError(t, Kinds().Sign(p, keyOf("west"), set, 1000))
		setSlot(p, SlotName("west", i))
		out = append(out, p)
	}
	return out
}

// A refusal that was not logged, as there were too many, is logged later if it is still there.
func TestRefusalsAreLoggedLater(t *testing.T) {
	var l refusalLog
	var refused []Refusal
	for i := range logBurst + 1 {
		refused = append(refused, Refusal{maker: "west", Name: fmt.Sprint(i)})
	}
	now := time.Unix(0, 0)
	require.Equal(t, refused[:logBurst], l.next(refused, now))
	require.Empty(t, l.next(refused, now.Add(logEvery/2)))
	require.Equal(t, refused[logBurst:], l.next(refused, now.Add(logEvery)))
	require.Empty(t, l.next(refused, now.Add(time.Hour)))
}
