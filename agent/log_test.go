package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/dataplane"
	"subctl/dataplane/dataplanetest"
)

// logged makes the agent log warnings and what has ended, and returns a function that returns the
// lines since its last call.
func (w *world) logged() func() []string {
	var out bytes.Buffer
	w.Log = slog.New(
		slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}),
	)
	return func() (lines []string) {
		for l := range strings.Lines(out.String()) {
			if !strings.Contains(l, "msg=dataplane ") {
				lines = append(lines, strings.TrimSpace(l))
			}
		}
		out.Reset()
		return lines
	}
}

// A fault that stays is logged once, and when it has ended.
func TestFaultsAreLoggedOnce(t *testing.T) {
	w := gateway(t)
	w.withNorth(t)
	w.run(t)
	lines := w.logged()
	for _, c := range []struct {
		key     dataplane.Key
		message string
	}{
		{dataplane.Rule{Priority: dataplane.CablePriority, Table: dataplane.CableTable}.Key(), failed},
		{dataplane.Key{Kind: dataplane.KindLink, Name: northDevice}, "cables cannot be set up"},
	} {
		w.kernels = map[string]*dataplanetest.Fake{}
		w.targets = nil
		w.refuses(t, c.key)
		for range 3 {
			_, _ = w.Reconcile(t.Context(), everything)
		}
		got := lines()
		require.Len(t, got, 1, "%s", strings.Join(got, "\n"))
		require.Contains(t, got[0], `level=ERROR msg="`+c.message+`"`)
		require.Contains(t, got[0], portTaken)
		w.refuses(t, dataplane.Key{})
		w.run(t)
		w.run(t)
		got = lines()
		require.Len(t, got, 1, "%s", strings.Join(got, "\n"))
		require.Contains(t, got[0], `level=INFO msg="ended: `+c.message+`"`)
	}
}

// A bad setting is logged once, by an agent that has just started too, and when it has ended.
func TestConditionsAreLogged(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	w.configured(t)
	w.config(t, "mtu: 70000")
	for range 2 { // the second agent finds the condition, and logs it with its first report
		w.warned = nil
		lines := w.logged()
		w.run(t)
		w.run(t)
		got := lines()
		require.Len(t, got, 1, "%s", strings.Join(got, "\n"))
		require.Contains(t, got[0],
			`level=WARN msg="condition is False" object=gw condition=CableConfigValid reason=BadCableConfig message="`)
		require.Contains(t, got[0], "it must be a whole number from 576 to 65535")
		g := get(t, w, &submarinerv1.Gateway{}, "gw")
		g.SetReportedAt(time.Now().Add(-time.Minute))
		require.NoError(t, w.Client.Update(t.Context(), g))
	}
	lines := w.logged()
	w.config(t, "mtu: 1400")
	w.run(t)
	w.run(t)
	require.Equal(t,
		[]string{`level=INFO msg="condition is no longer False" object=gw condition=CableConfigValid status=True`},
		lines())
}

// The line of controller-runtime about each attempt is left out, and no other.
func TestWithoutRetries(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	lines := w.logged()
	log := logr.FromSlogHandler(withoutRetries{w.Log.Handler()}).WithValues("reconcileID", "1").WithName("gateway")
	log.Error(role.ErrNotJoined, "Reconciler error")
	log.Info("Starting workers")
	require.Equal(t, []string{`level=INFO msg="Starting workers" reconcileID=1 logger=gateway`}, lines())
}

// Of a change of the kernel with very many lines, the log has the first ones, and how many more
// there are.
func TestLogOpsAreBounded(t *testing.T) {
	require.Equal(t, "a\nb", clipLines("a\nb"))
	exact := strings.TrimSuffix(strings.Repeat("x\n", mostLines), "\n")
	require.Equal(t, exact, clipLines(exact))
	require.Equal(t, exact+"\n… and 2 more lines", clipLines(exact+"\ny\nz"))
}

// Users who create and delete objects for ever do not fill the agent's memory. Objects with the
// same name in two namespaces are two.
func TestHostileConditions(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	lines := w.logged()
	say := func(namespace, name, message string) {
		o := &submarinerv1.GlobalEgressIP{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		w.logConditions(
			o,
			[]metav1.Condition{
				{Type: "Allocated", Status: metav1.ConditionFalse, Reason: "InvalidInput", Message: message},
			},
		)
	}
	say("a", "x", "one")
	say("b", "x", "two")
	say("a", "x", "one")
	require.Equal(t, []string{
		`level=WARN msg="condition is False" object=a/x condition=Allocated reason=InvalidInput message=one`,
		`level=WARN msg="condition is False" object=b/x condition=Allocated reason=InvalidInput message=two`,
	}, lines())
	for i := range 3 * mostWarned {
		say("a", fmt.Sprint(i), "no")
	}
	require.LessOrEqual(t, len(w.warned), mostWarned+1)
}
