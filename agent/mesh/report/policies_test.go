package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"subctl/agent/role"
	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

func TestPolicyReports(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	// made is a policy whose settings were mtu 1300, of ConfigMap tuned if named so.
	made := func(driver, configMap, settings string) *v1alpha1.CablePolicies {
		p := &v1alpha1.CablePolicies{
			ObjectMeta: metav1.ObjectMeta{
				Name:       "lab",
				Namespace:  submarinerv1.OperatorNamespace,
				Generation: 3,
				UID:        "7",
			},
			ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: driver}},
		}
		if configMap+settings != "" {
			p.ConnectionPolicies[0].CableOptions = &v1alpha1.CableOptions{
				Metadata: v1alpha1.CableOptionsSource{
					Name: configMap,
				}, Data: map[string]string{v1alpha1.CableCustomConfig: settings},
			}
		}
		return p
	}
	accepted := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type:               v1alpha1.ConditionAccepted,
			Status:             status,
			Reason:             reason,
			Message:            message,
			ObservedGeneration: 3,
			LastTransitionTime: metav1.NewTime(now),
		}
	}
	understood := accepted(metav1.ConditionTrue, reasonUnderstood, "the policy is understood")
	told := made("vxlan", "", "")
	told.Status.Conditions = []metav1.Condition{understood}
	told.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
	older := told.DeepCopy()
	older.Status.Conditions[0].ObservedGeneration = 2
	foreign := made("gre", "", "")
	foreign.Labels = map[string]string{submarinerv1.ClusterIDLabel: "east"}
	away := made("vxlan", "tuned", "mtu: 1300")
	away.ConnectionPolicies[0].CableOptions.Metadata.Namespace = "elsewhere"
	mtu := func(text string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "tuned", Namespace: submarinerv1.OperatorNamespace},
			Data:       map[string]string{v1alpha1.CableCustomConfig: text},
		}
	}
	was := understood
	was.LastTransitionTime = told.Status.Conditions[0].LastTransitionTime
	bad := func(message string) *metav1.Condition {
		c := accepted(metav1.ConditionFalse, reasonBadConfigMap, "the settings copied before stay in force: "+message)
		return &c
	}
	for _, test := range []struct {
		name    string
		objects []role.Object
		status  *metav1.Condition
		settled string // the new settings
	}{
		{"understood", []role.Object{made("vxlan", "", "")}, &understood, ""},
		{"said before", []role.Object{told}, nil, ""},
		{"said of an older one", []role.Object{older}, &was, ""},
		{"of another cluster", []role.Object{foreign}, nil, ""},
		{"settings of its own", []role.Object{made("vxlan", "", "mtu: 1300")}, &understood, ""},
		{"as in the ConfigMap", []role.Object{made("vxlan", "tuned", "mtu: 1300"), mtu("mtu: 1300")}, &understood, ""},
		{
			"ConfigMap has changed",
			[]role.Object{made("vxlan", "tuned", "mtu: 1300"), mtu("mtu: 1200")},
			nil,
			"mtu: 1200",
		},
		{
			"ConfigMap puts a mistake right",
			[]role.Object{made("vxlan", "tuned", "mtu: 13"), mtu("mtu: 1200")},
			nil,
			"mtu: 1200",
		},
		{
			"ConfigMap out of range",
			[]role.Object{made("vxlan", "tuned", "mtu: 1300"), mtu("mtu: 13")},
			bad(`spec[0].options.data: line 1: mtu "13": it must be a whole number from 576 to 65535`),
			"",
		},
		{
			"ConfigMap empty",
			[]role.Object{made("vxlan", "tuned", "mtu: 1300"), mtu("")},
			bad(
				"spec[0].options.metadata: ConfigMap tuned: it has no settings: put them under the key CableCustomConfig"),
			"",
		},
		{
			"ConfigMap missing",
			[]role.Object{made("vxlan", "tuned", "mtu: 1300")},
			bad(
				"spec[0].options.metadata: ConfigMap tuned: not found in namespace submariner-operator: create it, or remove its name from the policy"),
			"",
		},
		{
			"ConfigMap elsewhere",
			[]role.Object{away, mtu("mtu: 1300")},
			bad(
				"spec[0].options.metadata: ConfigMap tuned: namespace elsewhere is not supported: move the ConfigMap to namespace submariner-operator"),
			"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			statuses, updates := policyReports(role.NewSnapshot("gw", test.objects...), now)
			var want []role.Object
			if test.status != nil {
				want = []role.Object{&v1alpha1.CablePolicies{
					ObjectMeta: metav1.ObjectMeta{Name: "lab", Namespace: submarinerv1.OperatorNamespace, UID: "7"},
					Status:     v1alpha1.CablePoliciesStatus{Conditions: []metav1.Condition{*test.status}},
				}}
			}
			require.Equal(t, want, statuses)
			if test.settled == "" {
				require.Empty(t, updates)
				return
			}
			changed := test.objects[0].DeepCopyObject().(*v1alpha1.CablePolicies)
			changed.ConnectionPolicies[0].CableOptions.Data[v1alpha1.CableCustomConfig] = test.settled
			require.Equal(t, []role.Object{changed}, updates)
		})
	}
	mistaken, _ := policyReports(role.NewSnapshot("gw", made("gre", "", "")), now)
	c := mistaken[0].(*v1alpha1.CablePolicies).Status.Conditions[0]
	require.Equal(t, reasonMistake, c.Reason)
	require.Contains(t, c.Message, `spec[0].name: unknown cable driver "gre": use one of vxlan`)
}
