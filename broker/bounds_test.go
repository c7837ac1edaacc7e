package broker_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker"
	"subctl/broker/brokertest"
	"subctl/broker/exchange"
	"subctl/internal/kube"
	"subctl/internal/kubetest"
)

// long is more than an object may have.
var long = strings.Repeat("x", 17<<10)

// with returns o after a change.
func with(o client.Object, change func(client.Object)) client.Object {
	change(o)
	return o
}

// many returns strings that take 17 KiB together.
func many(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%0*d", 17<<10/n, i)
	}
	return out
}

// A member that writes its own objects cannot make them large.
func TestHostileSizes(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	edit := func(change func(*v1alpha1.CablePolicySpec)) client.Object {
		p := brokertest.InSlot(shared(d.NS, "east", "p"), "east", 0)
		change(&p.ConnectionPolicies[0])
		return p
	}
	selector := func(values []string) v1alpha1.ClusterSelector {
		return v1alpha1.ClusterSelector{
			MatchExpressions: []v1alpha1.ClusterRequirement{
				{Key: "a", Operator: metav1.LabelSelectorOpNotIn, Values: values},
			},
		}
	}
	var values []v1alpha1.ClusterRequirement
	for range 2 {
		values = append(
			values,
			v1alpha1.ClusterRequirement{
				Key:      "a",
				Operator: metav1.LabelSelectorOpNotIn,
				Values:   many(17 << 10 / 63)[:200],
			},
		)
	}
	page := func(change func(*v1alpha1.ExportedService)) client.Object {
		p := brokertest.InSlot(brokertest.Page(d.NS, "east", 0), "east", 0)
		change(&p.Spec.Services[0])
		return p
	}
	pods := func(n int, of v1alpha1.ExportedEndpoint) func(*v1alpha1.ExportedService) {
		return func(s *v1alpha1.ExportedService) {
			for range n {
				s.Endpoints = append(
					s.Endpoints,
					v1alpha1.ExportedEndpoints{
						Targets: []int32{1},
						Pods:    slices.Repeat([]v1alpha1.ExportedEndpoint{of}, 230),
					},
				)
			}
		}
	}
	text := strings.Repeat("x", 63)
	for name, o := range map[string]client.Object{
		"addresses of pods": page(pods(4, v1alpha1.ExportedEndpoint{IP: "10.200.100.200"})),
		"hostnames of pods": page(pods(1, v1alpha1.ExportedEndpoint{IP: "10.2.0.1", Hostname: text})),
		"zones of pods":     page(pods(1, v1alpha1.ExportedEndpoint{IP: "10.2.0.1", Zone: text})),
		"protocols of ports": page(func(s *v1alpha1.ExportedService) {
			for range 2 {
				s.Ports = append(s.Ports, v1alpha1.ExportedPort{Port: 1, AppProtocol: strings.Repeat("x", 250)})
			}
			s.Annotations = map[string]string{"a": strings.Repeat("x", 16<<10-500)}
		}),
		"labels of a Service": page(func(s *v1alpha1.ExportedService) { s.Labels = map[string]string{"a": long} }),
		"annotation":          with(cluster(d.NS, "east"), func(o client.Object) { brokertest.Annotate(o, "a", long) }),
		"annotations": with(brokertest.InSlot(endpoint(d.NS, "east", "1"), "east", 0), func(o client.Object) {
			brokertest.Annotate(o, "a", "")
			for _, s := range many(500) {
				o.GetAnnotations()[s] = ""
			}
		}),
		"labels": with(cluster(d.NS, "east"), func(o client.Object) {
			for i, s := range many(1000) {
				o.GetLabels()[fmt.Sprint("l", i)] = s
			}
		}),
		"networks": with(cluster(d.NS,
			"east"), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.ClusterCIDR = []string{long} }),
		"color": with(cluster(d.NS,
			"east"), func(o client.Object) { o.(*submarinerv1.Cluster).Spec.ColorCodes = []string{long} }),
		"backend": with(brokertest.InSlot(endpoint(d.NS, "east", "1"), "east", 0), func(o client.Object) {
			for i, s := range many(20) {
				o.(*submarinerv1.Endpoint).Spec.BackendConfig[fmt.Sprint(i)] = s
			}
		}),
		"options": edit(func(r *v1alpha1.CablePolicySpec) {
			r.CableOptions = &v1alpha1.CableOptions{Data: map[string]string{"CableCustomConfig": long}}
		}),
		"selectors": edit(func(r *v1alpha1.CablePolicySpec) { r.LeftClusterSelector.MatchExpressions = values }),
		"both selectors": edit(func(r *v1alpha1.CablePolicySpec) {
			r.LeftClusterSelector = selector(many(17 << 10 / 63)[:150])
			r.RightClusterSelector = selector(many(17 << 10 / 63)[:150])
		}),
	} {
		t.Run(name, func(t *testing.T) {
			err := east.Create(t.Context(), o)
			require.Truef(t, apierrors.IsForbidden(err), "%v", err)
			name := cmp.Or(o.GetAnnotations()[submarinerv1.NameAnnotation], o.GetName())
			require.ErrorContains(t, err, name+" has more than 16384 characters in its labels, annotations and spec")
		})
	}

	for name, set := range map[string]func(client.Object, map[string]string){
		"many short labels": func(o client.Object, m map[string]string) {
			m[submarinerv1.ClusterIDLabel] = "east"
			o.SetLabels(m)
		},
		"many short annotations": func(o client.Object, m map[string]string) {
			m[submarinerv1.SignatureAnnotation] = o.GetAnnotations()[submarinerv1.SignatureAnnotation]
			o.SetAnnotations(m)
		},
	} {
		t.Run(name, func(t *testing.T) {
			entries := map[string]string{}
			for i := range 101 {
				entries[fmt.Sprint("l", i)] = ""
			}
			o := cluster(d.NS, "east")
			set(o, entries)
			require.ErrorContains(t, east.Create(t.Context(), o), "east has more than 100 labels or annotations")
		})
	}

	t.Log("what is just small enough")
	o := cluster(d.NS, "east")
	require.NoError(t, east.Create(t.Context(), o))
	patch := func(data string) error {
		return east.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(data)))
	}
	require.NoError(t, patch(`{"metadata":{"annotations":{"a":"`+long[:16000]+`"}}}`))
	require.ErrorContains(t, patch(`{"metadata":{"annotations":{"b":"`+long[:2000]+`"}}}`),
		"more than 16384 characters")
	require.NoError(t, patch(`{"metadata":{"annotations":{"a":null}}}`))
	require.ErrorContains(t, patch(`{"metadata":{"annotations":{"submariner.io/name":"`+long+`"}}}`),
		"more than 16384 characters")
	require.ErrorContains(t, patch(`{"metadata":{"annotations":{"submariner.io/grant":"`+long+long+`"}}}`),
		"more than 24576 characters in its signature and its grant")
	require.ErrorContains(t, patch(`{"metadata":{"annotations":{"submariner.io/signature":null}}}`),
		"has no annotation submariner.io/signature")

	t.Log("what would keep it from being deleted")
	require.ErrorContains(t, patch(`{"metadata":{"finalizers":["x.io/y"]}}`),
		"may not change the finalizers and owners of east")
	require.ErrorContains(t,
		patch(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`),
		"may not change the finalizers and owners of east")
	require.NoError(
		t,
		d.Admin.Patch(t.Context(), o,
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["x.io/y"]}}`))),
	)
	require.NoError(t, patch(`{"metadata":{"annotations":{"a":"b"}}}`), "what an administrator put there stays")
	require.ErrorContains(t, patch(`{"metadata":{"finalizers":null}}`), "may not change")
	require.NoError(
		t,
		d.Admin.Patch(t.Context(), o,
			client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))),
	)

	t.Log("managed fields: of one manager, of many, deep, wide, and of several bytes for each character")
	deep := "{}"
	for range 2000 {
		deep = `{"f:a":` + deep + `}`
	}
	wide := `{"f:spec":{`
	for i := range 2000 {
		wide += fmt.Sprintf(`"f:%d":{},`, i)
	}
	wide = strings.TrimSuffix(wide, ",") + "}}"
	for name, fields := range map[string]string{
		"one long field":         `{"f:` + long + `":{}}`,
		"wide":                   wide,
		"deep":                   deep,
		"four bytes a character": `{"f:` + strings.Repeat("😀", 4000) + `":{}}`,
	} {
		t.Run("managed fields, "+name, func(t *testing.T) {
			o := cluster(d.NS, "east")
			o.ManagedFields = []metav1.ManagedFieldsEntry{{
				Manager:    "m",
				Operation:  metav1.ManagedFieldsOperationApply,
				APIVersion: "submariner.io/v1",
				FieldsType: "FieldsV1",
				FieldsV1:   metav1.NewFieldsV1(fields),
			}}
			err := east.Update(t.Context(),
				with(o, func(o client.Object) { o.SetResourceVersion(current(t, east, o)) }))
			require.ErrorContains(t, err, "east has more than 8192 bytes of managed fields")
		})
	}
	t.Run("managed fields, many managers", func(t *testing.T) {
		var err error
		for i := range 100 {
			o := cluster(d.NS, "east")
			if err = kube.Apply(t.Context(), east, fmt.Sprint("manager-", i), o); err != nil {
				break
			}
		}
		require.ErrorContains(t, err, "east has more than 8192 bytes of managed fields")
	})
}

// current returns the resource version of an object.
func current(t *testing.T, c client.Client, o client.Object) string {
	t.Helper()
	now := o.DeepCopyObject().(client.Object)
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), now))
	return now.GetResourceVersion()
}

// Who holds a join file cannot make large identities, nor any number of them.
func TestHostileIdentities(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	joiner, _ := d.Joiner(t)
	name := "cluster-x-token-0123456789abcdef0123456789abcdef"
	meta := func(name string) metav1.ObjectMeta { return owned(d.NS, name, "cluster-x") }
	account := &corev1.ServiceAccount{ObjectMeta: meta("cluster-x")}
	secret := &corev1.Secret{ObjectMeta: meta(name), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: "cluster-x"}
	role := &rbacv1.Role{ObjectMeta: meta("cluster-x"), Rules: []rbacv1.PolicyRule{
		{
			APIGroups:     []string{""},
			Resources:     []string{"serviceaccounts"},
			ResourceNames: []string{"cluster-x"},
			Verbs:         []string{"get", "delete"},
		},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta(
			bindingName(broker.MemberRoleName, "cluster-x")),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: broker.MemberRoleName},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "cluster-x", Namespace: d.NS}},
	}
	small := []client.Object{account, secret, role, binding}
	for i, o := range small {
		version := []string{"v1", "v1", "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io/v1"}[i]
		require.NoError(t, joiner.Create(t.Context(), o.DeepCopyObject().(client.Object), client.DryRunAll))
		for what, change := range map[string]func(client.Object){
			"annotations": func(o client.Object) {
				o.SetAnnotations(map[string]string{"a": long, corev1.ServiceAccountNameKey: "cluster-x"})
			},
			"labels": func(o client.Object) {
				labels := map[string]string{}
				for i := range 300 {
					labels[fmt.Sprintf("l%060d", i)] = ""
				}
				o.SetLabels(labels)
			},
			"managed fields": func(o client.Object) {
				o.SetManagedFields([]metav1.ManagedFieldsEntry{{
					Manager:    "m",
					Operation:  metav1.ManagedFieldsOperationApply,
					APIVersion: version,
					FieldsType: "FieldsV1",
					FieldsV1:   metav1.NewFieldsV1(`{"f:` + long + `":{}}`),
				}})
			},
			"owners": func(o client.Object) {
				o.SetOwnerReferences([]metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ServiceAccount", Name: long, UID: "u"},
				})
			},
		} {
			t.Run(fmt.Sprintf("%T, %s", o, what), func(t *testing.T) {
				err := joiner.Create(t.Context(), with(o.DeepCopyObject().(client.Object), change), client.DryRunAll)
				require.ErrorContains(t, err, "who joins may make objects of at most 16384 bytes")
			})
		}
	}
	t.Run("data of a Secret", func(t *testing.T) {
		large := secret.DeepCopy()
		large.Data = map[string][]byte{"a": []byte(long)}
		require.ErrorContains(t, joiner.Create(t.Context(), large), "at most 16384 bytes")
	})
	counts := []string{
		"count/serviceaccounts",
		"count/secrets",
		"count/roles.rbac.authorization.k8s.io",
		"count/rolebindings.rbac.authorization.k8s.io",
	}
	limit(t, d, "0", counts...)
	for i, counted := range counts {
		t.Run("many of "+counted, func(t *testing.T) {
			err := joiner.Create(t.Context(), small[i])
			require.ErrorContains(t, err, "exceeded quota: submariner-k8s-broker, requested: "+counted+"=1")
		})
	}
}

// A broker accepts every page that members accept: its policy counts no more than the bytes that
// they count.
func TestLargestPages(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	one := brokertest.Page("", "east", 0).Spec.Services[0]
	slot := 0
	for name, change := range map[string]func(*v1alpha1.ExportedService){
		"addresses": func(s *v1alpha1.ExportedService) {
			s.Endpoints = nil
			s.Ports = nil
			s.Ready = false
		},
		"names": func(s *v1alpha1.ExportedService) {
			s.Endpoints = nil
			s.Address = ""
			s.Ports = nil
			s.Ready = false
		},
		"pods": func(s *v1alpha1.ExportedService) {
			s.Endpoints[0].Pods = slices.Repeat([]v1alpha1.ExportedEndpoint{{IP: "10.2.0.1", Hostname: "a", Zone: "z"}},
				100)
		},
		"groups": func(s *v1alpha1.ExportedService) {
			s.Endpoints = slices.Repeat(
				[]v1alpha1.ExportedEndpoints{{Targets: []int32{1}, Pods: []v1alpha1.ExportedEndpoint{}}}, 16)
		},
		"ports": func(s *v1alpha1.ExportedService) {
			s.Endpoints = nil
			s.Ports = slices.Repeat([]v1alpha1.ExportedPort{{Port: 1, Name: "a"}}, 32)
		},
		"labels": func(s *v1alpha1.ExportedService) {
			s.Endpoints = nil
			s.Labels = map[string]string{}
			s.Annotations = map[string]string{"a": "b"}
			for i := range 32 {
				s.Labels[fmt.Sprint(i)] = ""
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := brokertest.Page(d.NS, "east", 0)
			p.Spec.Services = nil
			for i := range 256 {
				s := *one.DeepCopy()
				s.Name = fmt.Sprintf("s%03d", i)
				change(&s)
				p.Spec.Services = append(p.Spec.Services, s)
				if b, err := json.Marshal([]any{p.Labels, map[string]string{}, p.Spec}); err != nil || len(b) > 16<<10 {
					p.Spec.Services = p.Spec.Services[:i]
					break
				}
			}
			brokertest.Sign(p, "")
			require.NoError(t, east.Create(t.Context(), brokertest.InSlot(p, "east", slot)))
			slot++
			stored := &v1alpha1.ExportedServices{}
			require.NoError(t, east.Get(t.Context(), client.ObjectKeyFromObject(p), stored))
			require.Equal(t, p.Spec, stored.Spec)
		})
	}
}

// limit changes the quota of a broker, and waits until it is in force and the objects of the kinds
// that clusters exchange are counted: the objects of a member that has left may still count.
func limit(t *testing.T, d *deployed, to string, names ...string) {
	t.Helper()
	q := &corev1.ResourceQuota{}
	set := func(to string, names ...string) {
		require.NoError(t, kube.Settled(func() error { // the API server counts in the same object
			if err := d.Admin.Get(t.Context(), client.ObjectKey{Namespace: d.NS, Name: "submariner-k8s-broker"},
				q); err != nil {
				return err
			}
			for _, name := range names {
				q.Spec.Hard[corev1.ResourceName(name)] = resource.MustParse(to)
			}
			return d.Admin.Update(t.Context(), q)
		}))
	}
	set(to, names...)
	require.Eventually(t, func() bool {
		err := d.Admin.Get(t.Context(), client.ObjectKeyFromObject(q), q)
		now, counted := q.Status.Hard[corev1.ResourceName(names[0])]
		return err == nil && counted && now.Cmp(resource.MustParse(to)) == 0
	}, patience, tick)
	for _, k := range exchange.Kinds() {
		name := corev1.ResourceName("count/" + k.Resource + "." + k.GroupVersion.Group)
		began := time.Now()
		recounts := 0
		require.Eventually(t, func() bool {
			// it may have counted what it had not read yet
			if n := int(time.Since(began) / (5 * time.Second)); n > recounts {
				recounts = n
				set(fmt.Sprint(100+n), "count/leases.coordination.k8s.io")
			}
			list := k.List.DeepCopyObject().(client.ObjectList)
			require.NoError(t, d.Admin.Get(t.Context(), client.ObjectKeyFromObject(q), q))
			require.NoError(t, d.Admin.List(t.Context(), list, client.InNamespace(d.NS)))
			used := q.Status.Used[name]
			return used.Value() == int64(meta.LenList(list))
		}, time.Minute, tick, "%s", name)
	}
}

// A quota bounds how many objects all members have together, if they could create any.
func TestQuota(t *testing.T) {
	d := deploy(t, kubetest.Shared(t))
	east := d.Join(t, "east", "uid-east")
	limit(t, d, "7", "count/endpoints.submariner.io")
	for i := 4; i < 7; i++ {
		require.NoError(t,
			east.Create(t.Context(), brokertest.InSlot(endpoint(d.NS, "east", fmt.Sprint(i)), "east", i)),
			"four are reserved")
	}
	err := east.Create(t.Context(), brokertest.InSlot(endpoint(d.NS, "east", "7"), "east", 7))
	require.ErrorContains(t, err,
		"exceeded quota: submariner-k8s-broker, requested: count/endpoints.submariner.io=1, used: count/endpoints.submariner.io=7")
	require.NoError(t, east.Create(t.Context(), cluster(d.NS, "east")), "quotas are of a kind")
	first := brokertest.InSlot(endpoint(d.NS, "east", "0"), "east", 0)
	require.NoError(t,
		east.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"hostname":"other"}}`))),
		"what there is can be changed")
}
