package parts

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/cable"
)

// voter returns an elector that has not started, and a function that returns its standing after
// the cluster has been joined with or without several active gateways.
func voter(t *testing.T, trigger func()) (e *elector, standing func(multi bool) (role.Standing, error)) {
	t.Helper()
	e, err := newElector(
		Options{
			Node:    "gw",
			Config:  &rest.Config{},
			Log:     slog.New(slog.DiscardHandler),
			Lease:   DefaultLease,
			Trigger: trigger,
		},
	)
	require.NoError(t, err)
	return e, func(multi bool) (role.Standing, error) {
		s := role.NewSnapshot("gw",
			&v1alpha1.Submariner{Spec: v1alpha1.SubmarinerSpec{MultiActiveGatewayEnabled: multi}})
		s.Now = time.Now()
		err := e.Observe(&s)
		return s.Standing, err
	}
}

var (
	alone       = role.Standing{Active: true, Speaker: true, Gateways: []string{"gw"}}
	amongOthers = role.Standing{Active: true, Gateways: []string{"gw"}}
	draining    = role.Standing{Active: true, Drain: cable.Draining}
	standby     = role.Standing{Active: true, Drain: cable.Standby}
)

// With one active gateway, the holder of the lease is the active one, and the others are standbys.
// With several, each is active: at once, and whoever holds the lease.
func TestStandingOfAGateway(t *testing.T) {
	for _, test := range []struct {
		name  string
		role  int32
		multi bool
		want  role.Standing
		err   error
	}{
		{"one: no holder is known", unknown, false, role.Standing{}, ErrTooEarly},
		{"one: it holds the lease", leading, false, alone, nil},
		{"one: another holds the lease", following, false, standby, nil},
		{"all: no holder is known", unknown, true, amongOthers, nil},
		{"all: it holds the lease", leading, true, alone, nil},
		{"all: another holds the lease", following, true, amongOthers, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			e, standing := voter(t, func() {})
			e.setStanding(test.role)
			got, err := standing(test.multi)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, got)
		})
	}
}

// On a node that is no gateway node any more, the agent leaves everything as it is, except the
// lease.
func TestNoGatewayNode(t *testing.T) {
	for label, want := range map[string]error{"true": nil, "": ErrTooEarly} {
		e, _ := voter(t, func() {})
		e.setStanding(following)
		s := role.NewSnapshot(
			"gw",
			&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{
					Name:   "gw",
					Labels: map[string]string{submarinerv1.GatewayNodeLabel: label},
				},
			},
		)
		s.Now = time.Now()
		require.ErrorIs(t, e.Observe(&s), want)
		require.Equal(t, want != nil, e.yields.Load())
	}
}

// A gateway that is not to be active any more is draining for a while, and then a standby. The
// holder of the lease stays active, and a gateway that does not know the holder waits.
func TestBecomingAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		triggers := 0
		e, standing := voter(t, func() { triggers++ })
		is := func(multi bool, want role.Standing) {
			t.Helper()
			got, err := standing(multi)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		is(true, amongOthers)
		_, err := standing(false)
		require.ErrorIs(t, err, ErrTooEarly)
		time.Sleep(time.Minute)
		e.setStanding(following)
		triggers = 0
		is(false, draining)
		time.Sleep(standbyAfter - time.Second)
		is(false, draining)
		require.Zero(t, triggers)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, triggers)
		is(false, standby)

		is(true, amongOthers)
		is(false, draining)
		is(true, amongOthers) // the change is undone
		is(false, draining)
		e.setStanding(leading)
		is(false, alone)
		is(true, alone)
		is(false, alone)
		time.Sleep(standbyAfter)
		e.setStanding(following)
		is(false, standby) // another gateway has taken over while this one did not answer
		time.Sleep(time.Minute)
	})
}

// A snapshot without a Submariner changes nothing: the cluster is being uninstalled, or joined.
func TestStandingWithoutASubmariner(t *testing.T) {
	e, standing := voter(t, func() {})
	e.setStanding(following)
	_, err := standing(true)
	require.NoError(t, err)
	s := role.NewSnapshot[role.Object]("gw")
	require.NoError(t, e.Observe(&s))
	require.Equal(t, amongOthers, s.Standing)
}
