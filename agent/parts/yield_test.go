package parts

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/internal/kubetest"
)

// pairOfGateways returns a snapshot of gateway gw, and of another one that reported some time ago.
func pairOfGateways(now time.Time, multi, drained, otherDrained, otherLabelled bool, ago time.Duration) role.Snapshot {
	node := func(name string, gateway, drained bool) *corev1.Node {
		n := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{}},
		}
		if gateway {
			n.Labels[submarinerv1.GatewayNodeLabel] = "true"
		}
		if drained {
			n.Annotations[submarinerv1.DrainAnnotation] = "5m"
		}
		return n
	}
	report := &submarinerv1.Gateway{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	report.SetReportedAt(now.Add(-2 * time.Hour)) // its clock is wrong
	s := role.NewSnapshot[role.Object]("gw", node("gw", true, drained), node("other", otherLabelled, otherDrained),
		report,
		&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "east", MultiActiveGatewayEnabled: multi}})
	s.Now = now.Add(-ago)
	s.NoteReports(nil)
	report.SetReportedAt(now.Add(-time.Hour))
	s.NoteReports(s.ReportTimes)
	s.Now = now
	return s
}

// A gateway that is to be drained leaves the lease to one that works, and only then.
func TestYield(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		drained, otherDrained, otherLabelled bool
		ago                                  time.Duration
		want                                 string
	}{
		"in service":              {false, false, true, time.Second, ""},
		"drained":                 {true, false, true, time.Second, "other"},
		"both are drained":        {true, true, true, time.Second, ""},
		"the other is dead":       {true, false, true, time.Minute, ""},
		"the other was a gateway": {true, false, false, time.Second, ""},
	} {
		s := pairOfGateways(now, false, test.drained, test.otherDrained, test.otherLabelled, test.ago)
		require.Equal(t, test.want, yieldsTo(s, "gw", true), name)
	}
}

// An agent that has just started yields the lease to a gateway once that one has reported again:
// its last report may be of a dead one.
func TestYieldAfterAStart(t *testing.T) {
	now := time.Now()
	s := pairOfGateways(now, false, true, false, true, time.Second)
	s.NoteReports(nil)
	for range 2 {
		require.Empty(t, yieldsTo(s, "gw", true))
		require.Equal(t, "other", yieldsTo(s, "gw", false), "it does not have the lease, and takes it from nobody")
		s.Now = s.Now.Add(time.Second)
		s.NoteReports(s.ReportTimes)
	}
	role.Find[*submarinerv1.Gateway](s, "other").SetReportedAt(now)
	s.NoteReports(s.ReportTimes)
	require.Equal(t, "other", yieldsTo(s, "gw", true))
}

// The only active gateway hands over its role when it is to be drained: it carries traffic until
// another gateway has the lease, is draining for a while, and then a standby. It stays one when it
// is in service again.
func TestHandover(t *testing.T) {
	e, _ := voter(t, func() {})
	now := time.Now()
	standing := func(drained bool) role.Standing {
		t.Helper()
		s := pairOfGateways(now, false, drained, false, true, time.Second)
		require.NoError(t, e.Observe(&s))
		return s.Standing
	}
	e.setStanding(leading)
	require.Equal(t, alone, standing(false))
	require.False(t, e.yields.Load())
	require.Equal(t, alone, standing(true), "nobody else has the lease yet")
	require.True(t, e.yields.Load())
	e.setStanding(following)
	began := now
	require.Equal(t, draining, standing(true))
	now = began.Add(standbyAfter - 1)
	require.Equal(t, draining, standing(true))
	now = began.Add(standbyAfter)
	require.Equal(t, standby, standing(true))
	require.Equal(t, standby, standing(false))
	require.False(t, e.yields.Load())
}

// The holder of the lease leaves it to another gateway when it is to be drained, or when its node
// is no gateway node any more although its agent goes on to run. It does not take it back, and
// takes part again when it is in service, on a real API server.
func TestLeaseIsLeft(t *testing.T) {
	server := kubetest.Start(t)
	require.NoError(
		t,
		client.IgnoreAlreadyExists(
			server.Client(t).Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}),
		),
	)
	lease := Lease{Duration: 5 * time.Minute, Renew: 20 * time.Second, Retry: 100 * time.Millisecond}
	start := func(node string) *elector {
		e, err := newElector(
			Options{
				Node:    node,
				Config:  server.Config(),
				Log:     slog.New(slog.DiscardHandler),
				Lease:   lease,
				Trigger: func() {},
			},
		)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = e.Start(ctx) }()
		t.Cleanup(func() { stop(); <-done })
		return e
	}
	is := func(e *elector, role int32) func() bool { return func() bool { return e.role.Load() == role } }
	const long, short = 20 * time.Second, 20 * time.Millisecond
	gw := start("gw")
	require.Eventually(t, is(gw, leading), long, short)
	other := start("other")
	require.Eventually(t, is(other, following), long, short)

	observe := func(drained, unlabelled bool, otherReported time.Duration) {
		s := pairOfGateways(time.Now(), true, drained, false, true, otherReported)
		if unlabelled {
			role.Find[*corev1.Node](s, "gw").Labels = nil
			require.ErrorIs(t, gw.Observe(&s), ErrTooEarly)
			return
		}
		require.NoError(t, gw.Observe(&s))
	}
	for name, leave := range map[string]func(){
		"it is to be drained":     func() { observe(true, false, time.Second) },
		"it has lost its label":   func() { observe(false, true, time.Second) },
		"the other one is not up": func() { observe(false, true, time.Hour) },
	} {
		leave()
		require.Eventually(t, is(other, leading), long, short, "%s: it need not expire", name)
		require.Eventually(t, is(gw, following), long, short, name)
		observe(false, false, time.Second)
		other.setYields(true)
		require.Eventually(t, is(gw, leading), long, short, "%s: it takes part again", name)
		require.Eventually(t, is(other, following), long, short, name)
		other.setYields(false)
	}
}

// A gateway that leaves the lease reads it until another one holds it, and then no more, for as
// long as it does not take part.
func TestLeaseIsReadUntilAnotherHoldsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := voter(t, func() {})
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.GatewayLease, Namespace: submarinerv1.OperatorNamespace},
		}
		lease.Spec.HolderIdentity = new("") // released
		c := fake.NewClientset(lease)
		reads := func(within time.Duration) (n int) {
			time.Sleep(within)
			synctest.Wait()
			n = len(c.Actions())
			c.ClearActions()
			return n
		}
		e.client = c
		e.setStanding(leading)
		e.yields.Store(true)
		done := make(chan struct{})
		go func() { defer close(done); e.stayOut(t.Context()) }()
		require.Greater(t, reads(10*time.Second), 10)
		require.Equal(t, leading, e.role.Load(), "nobody else holds it")

		lease.Spec.HolderIdentity = new(submarinerv1.LeaseHolder("other"))
		_, err := c.CoordinationV1().Leases(lease.Namespace).Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
		c.ClearActions() // the update
		require.Equal(t, 1, reads(time.Second))
		require.Equal(t, following, e.role.Load())
		require.Zero(t, reads(time.Hour))

		e.setStanding(leading) // the election reports late that this gateway had got it
		require.Equal(t, 1, reads(time.Second))
		require.Equal(t, following, e.role.Load())

		e.yields.Store(false)
		e.wake.Send()
		<-done
	})
}

// A gateway that takes over keeps the Endpoints of all others: they may forward packets. Who was
// active before, and does not announce that it is not any more, has been replaced. A gateway that
// is to be drained is about to announce that. A gateway that has stopped renewing its Lease is
// lost, whatever it announces.
func TestTakeover(t *testing.T) {
	now := time.Now()
	both := []string{"gw", "other"}
	for name, test := range map[string]struct {
		announced      string
		drained, lost  bool
		want, replaced []string
	}{
		"the agent of the active gateway has died": {"", false, false, both, []string{"other"}},
		"it has been dead for a minute":            {"", false, true, []string{"gw"}, nil},
		"it is to be drained":                      {"", true, false, both, nil},
		"it is draining":                           {submarinerv1.Draining, true, false, both, nil},
		"a standby":                                {submarinerv1.Standby, false, false, both, nil},
		"a standby that is drained":                {submarinerv1.Drained, true, false, both, nil},
		"a standby that has died":                  {submarinerv1.Standby, false, true, []string{"gw"}, nil},
		"a gateway that died while it drains":      {submarinerv1.Draining, true, true, []string{"gw"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := voter(t, func() {})
			e.setStanding(leading)
			s := pairOfGateways(now, false, false, test.drained, true, time.Second)
			endpoint := endpointOn("other", "1")
			if endpoint.Spec.BackendConfig = map[string]string{}; test.announced != "" {
				endpoint.Spec.BackendConfig[submarinerv1.BackendDrain] = test.announced
			}
			objs := []role.Object{
				endpoint,
				role.Find[*corev1.Node](s, "gw"),
				role.Find[*corev1.Node](s, "other"),
				&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "east"}},
			}
			s = role.NewSnapshot("gw", objs...)
			s.Now = now
			require.NoError(t, e.Observe(&s))
			require.Equal(t, both, s.Standing.Gateways)
			if test.lost {
				for range mostMisses + 1 {
					e.siblings.read(nil)
				}
			}
			require.NoError(t, e.Observe(&s))
			require.Equal(t, test.want, s.Standing.Gateways)
			require.Equal(t, test.replaced, s.Standing.Replaced)
		})
	}
}

// The holder of the lease learns late that another gateway has got it. It does not make that one a
// standby, which has become the active gateway meanwhile. Once it holds the lease again, it has
// replaced a gateway that does not follow.
func TestSuccessorIsNotReplaced(t *testing.T) {
	e, _ := voter(t, func() {})
	replaced := func(announced string) []string {
		t.Helper()
		endpoint := endpointOn("other", "1")
		endpoint.Spec.BackendConfig = map[string]string{submarinerv1.BackendDrain: announced}
		s := pairOfGateways(time.Now(), false, true, false, true, time.Second)
		s = role.NewSnapshot[role.Object]("gw", endpoint, role.Find[*corev1.Node](s, "gw"),
			role.Find[*corev1.Node](s, "other"), &v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{ClusterID: "east"}})
		s.Now = time.Now()
		require.NoError(t, e.Observe(&s))
		return s.Standing.Replaced
	}
	e.setStanding(leading)
	require.Empty(t, replaced(submarinerv1.Standby))
	require.Empty(t, replaced(""), "it is the active one now")
	e.setStanding(following)
	require.Empty(t, replaced(""))
	e.setStanding(leading)
	e.single = time.Time{} // long ago
	require.Equal(t, []string{"other"}, replaced(""), "its agent has died")
}

// An active gateway whose agent ends announces that it is a standby before it releases the lease,
// on a real API server. So the next active gateway keeps its Endpoint. It does not announce that if
// no other gateway can take over, if the cluster is leaving, if the node is no gateway node any
// more, or if every gateway is active.
func TestAgentOfTheActiveGatewayEnds(t *testing.T) {
	server := kubetest.Start(t)
	require.NoError(
		t,
		client.IgnoreAlreadyExists(
			server.Client(t).Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: submarinerv1.OperatorNamespace}}),
		),
	)
	for name, test := range map[string]struct {
		multi, leaving, unlabelled bool
		ago                        time.Duration // since the other gateway has reported
		want                       string
	}{
		"another gateway works":    {false, false, false, time.Second, submarinerv1.Standby},
		"the other one is dead":    {false, false, false, time.Minute, ""},
		"the cluster is leaving":   {false, true, false, time.Second, ""},
		"no gateway node any more": {false, false, true, time.Second, ""},
		"every gateway is active":  {true, false, false, time.Second, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var announced string
			e, err := newElector(Options{
				Node:    "gw",
				Config:  server.Config(),
				Log:     slog.New(slog.DiscardHandler),
				Lease:   DefaultLease,
				Trigger: func() {},
				Announce: func(ctx context.Context, own *submarinerv1.Endpoint) error {
					lease := &coordinationv1.Lease{}
					require.NoError(
						t,
						server.Client(t).Get(
							ctx,
							client.ObjectKey{
								Namespace: submarinerv1.OperatorNamespace,
								Name:      submarinerv1.GatewayLease,
							},
							lease,
						),
					)
					require.Equal(t, submarinerv1.LeaseHolder("gw"), *lease.Spec.HolderIdentity,
						"it still holds the lease")
					require.Equal(t, "east-gw1", own.Name)
					announced = own.Spec.BackendConfig[submarinerv1.BackendDrain]
					return nil
				},
			})
			require.NoError(t, err)
			ctx, end := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = e.Start(ctx) }()
			require.Eventually(t, func() bool { return e.role.Load() == leading }, 20*time.Second, 20*time.Millisecond)

			s := pairOfGateways(time.Now(), test.multi, false, false, true, test.ago)
			own := endpointOn("gw", "1")
			sub := role.List[*v1alpha1.Submariner](s)[0]
			own.Spec.BackendConfig = map[string]string{}
			node := role.Find[*corev1.Node](s, "gw")
			if test.leaving {
				sub.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
			for _, unlabelled := range []bool{false, test.unlabelled} { // it was a gateway node
				if unlabelled {
					node.Labels = nil
				}
				heard := s.ReportTimes
				s = role.NewSnapshot[role.Object]("gw", own, sub, node, role.Find[*corev1.Node](s, "other"),
					role.Find[*submarinerv1.Gateway](s, "other"))
				s.Now = time.Now()
				s.ReportTimes = heard
				_ = e.Observe(&s)
			}
			end()
			<-done
			require.Equal(t, test.want, announced)
			require.Empty(t, own.Spec.BackendConfig, "it belongs to the cache")
		})
	}
}

// The Leases of gateways are followed only in a cluster that has several.
func TestLeasesAreFollowed(t *testing.T) {
	for _, several := range []bool{false, true} {
		e, _ := voter(t, func() {})
		e.setStanding(leading)
		s := pairOfGateways(time.Now(), false, false, false, several, time.Second)
		require.NoError(t, e.Observe(&s))
		require.Equal(t, several, e.siblings.following)
	}
}

// While all gateways but one leave the traffic to it, none has been replaced, whatever they
// announce.
func TestOthersBecomeStandbys(t *testing.T) {
	e, _ := voter(t, func() {})
	e.setStanding(leading)
	began := time.Now()
	replaced := func(multi bool, after time.Duration) []string {
		s := pairOfGateways(began.Add(after), multi, false, false, true, time.Second)
		s = role.NewSnapshot[role.Object]("gw", endpointOn("other", "1"), role.Find[*corev1.Node](s, "gw"),
			role.Find[*corev1.Node](s, "other"), role.List[*v1alpha1.Submariner](s)[0])
		s.Now = began.Add(after)
		require.NoError(t, e.Observe(&s))
		require.Equal(t, []string{"gw", "other"}, s.Standing.Gateways)
		return s.Standing.Replaced
	}
	require.Empty(t, replaced(true, 0))
	require.Empty(t, replaced(false, 0))
	require.Empty(t, replaced(false, standbyAfter-1))
	require.Equal(t, []string{"other"}, replaced(false, standbyAfter), "it has not followed")
}
