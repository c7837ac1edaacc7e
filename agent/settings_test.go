package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"subctl/agent/mesh/report"
	"subctl/agent/role"
	"subctl/agent/roles"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/dataplane"
)

const configName = "cable-driver-config"

// recorded is an Event that was recorded.
type recorded struct{ about, reason, note string }

// recorder keeps Events.
type recorder struct{ got []recorded }

func (r *recorder) Eventf(about, _ runtime.Object, kind, reason, _, _ string, args ...any) {
	m, _ := meta.Accessor(about)
	r.got = append(r.got, recorded{m.GetName(), kind + " " + reason, args[0].(string)})
}

func (r *recorder) AnnotatedEventf(
	about, related runtime.Object,
	_ map[string]string,
	kind, reason, action, note string,
	args ...any,
) {
	r.Eventf(about, related, kind, reason, action, note, args...)
}

// config writes the ConfigMap that the Submariner names.
func (w *world) config(t *testing.T, text string) {
	t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configName, Namespace: submarinerv1.OperatorNamespace},
		Data:       map[string]string{v1alpha1.CableCustomConfig: text},
	}
	if w.Client.Create(t.Context(), cm) != nil {
		require.NoError(t, w.Client.Update(t.Context(), cm))
	}
}

func (w *world) configCondition(t *testing.T) metav1.Condition {
	t.Helper()
	c := meta.FindStatusCondition(get(t, w, &submarinerv1.Gateway{}, "gw").Status.Conditions,
		report.ConditionCableConfigValid)
	require.NotNil(t, c)
	return *c
}

func (w *world) configured(t *testing.T) {
	t.Helper()
	sub := get(t, w, &v1alpha1.Submariner{}, v1alpha1.SubmarinerName)
	sub.Spec.CableDriverCustomConfig = &v1alpha1.ConfigMapRef{ConfigMapName: configName}
	require.NoError(t, w.Client.Update(t.Context(), sub))
}

// A good configuration is applied live; a bad one is said to be, and changes nothing,
// whatever restarts in between.
func TestCableConfig(t *testing.T) {
	w := newWorld(t, roles.Gateway(), "two-clusters")
	events := &recorder{}
	w.events = events
	w.configured(t)
	w.config(t, "mtu: 1400")
	w.run(t)
	require.Contains(t, w.holds(t, dataplane.GatewayOwner), "table 170171100 nhid 535382446 src 10.111.1.1 mtu 1400")
	require.Equal(t, metav1.ConditionTrue, w.configCondition(t).Status)
	require.Empty(t, events.got)

	const why = "the settings before stay in force: ConfigMap cable-driver-config, key CableCustomConfig: " +
		`line 1: mtu "70000": it must be a whole number from 576 to 65535`
	w.config(t, "mtu: 70000")
	w.run(t)
	require.Contains(t, w.holds(t, dataplane.GatewayOwner), "table 170171100 nhid 535382446 src 10.111.1.1 mtu 1400")
	c := w.configCondition(t)
	require.Equal(t, metav1.ConditionFalse, c.Status)
	require.Equal(t, why, c.Message)
	w.run(t)
	require.Equal(t, []recorded{{"gw", "Warning BadCableConfig", why}}, events.got)

	next := newWorld(t, roles.Gateway(), "alone") // another agent on the same cluster and node
	next.Client = w.Client
	next.run(t)
	require.Contains(t, next.holds(t, dataplane.GatewayOwner), "table 170171100 nhid 535382446 src 10.111.1.1 mtu 1400")
	require.NoError(
		t,
		w.Client.Delete(
			t.Context(),
			&corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: configName, Namespace: submarinerv1.OperatorNamespace},
			},
		),
	)
	next.run(t)
	require.Contains(t, next.holds(t, dataplane.GatewayOwner), "table 170171100 nhid 535382446 src 10.111.1.1 mtu 1400")
	require.Equal(
		t,
		"the settings before stay in force: there is no ConfigMap cable-driver-config in namespace submariner-operator, "+
			"which Submariner.spec.cableDriverCustomConfig names: make it, or remove the name",
		next.configCondition(t).Message,
	)

	next.config(t, "")
	next.run(t)
	require.Contains(t, next.holds(t, dataplane.GatewayOwner), "table 170171100 nhid 535382446 src 10.111.1.1 mtu 1450")
	require.Equal(t, metav1.ConditionTrue, next.configCondition(t).Status)
	require.NotContains(t, get(t, next, &submarinerv1.Cluster{}, "east").Annotations,
		submarinerv1.CableConfigAnnotation)
}

// ConfigMaps of others may hold anything: nothing of it stays in memory.
func TestSlimConfigMap(t *testing.T) {
	got, err := slimConfigMap(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"a": "long"}},
		Data: map[string]string{
			"ca.crt":                   "long",
			v1alpha1.CableCustomConfig: "mtu: 1400",
		}, BinaryData: map[string][]byte{"b": []byte("long")},
	})
	require.NoError(t, err)
	require.Equal(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "x",
		}, Data: map[string]string{"ca.crt": "", v1alpha1.CableCustomConfig: "mtu: 1400"},
	}, got)
}

func TestNewlyFalse(t *testing.T) {
	c := func(status metav1.ConditionStatus, reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: "Synced", Status: status, Reason: reason, Message: message}}
	}
	bad := c(metav1.ConditionFalse, "Failed", "no route")
	for _, test := range []struct {
		name    string
		was, is []metav1.Condition
		news    bool
	}{
		{"from the start", nil, bad, true},
		{"now", c(metav1.ConditionTrue, "Seen", ""), bad, true},
		{"still", bad, bad, false},
		{"for another reason", bad, c(metav1.ConditionFalse, "Failed", "no device"), true},
		{"no more", bad, c(metav1.ConditionTrue, "Seen", ""), false},
		{"waiting", nil, c(metav1.ConditionFalse, role.ReasonWaiting, "not yet"), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.news, len(newlyFalse(test.was, test.is)) == 1)
		})
	}
	require.Len(t, eventNote(strings.Repeat("x", 3000)), 1024)
}
