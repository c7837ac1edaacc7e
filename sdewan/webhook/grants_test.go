package webhook

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"subctl/sdewan"
)

// cached has Roles and bindings of one namespace, and of one user. Like the manager's cache, it
// copies them only for readers who do not say that they change nothing.
type cached struct {
	roles    map[string]*rbacv1.Role
	bindings []rbacv1.RoleBinding
	cluster  map[string]*rbacv1.ClusterRole
	clusters []rbacv1.ClusterRoleBinding
	gets     int
}

func (c *cached) Get(_ context.Context, key client.ObjectKey, to client.Object, opts ...client.GetOption) error {
	c.gets++
	shared := (&client.GetOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy != nil
	switch to := to.(type) {
	case *rbacv1.Role:
		if role := c.roles[key.Name]; role != nil {
			if *to = *role; !shared {
				role.DeepCopyInto(to)
			}
			return nil
		}
	case *rbacv1.ClusterRole:
		if role := c.cluster[key.Name]; role != nil {
			*to = *role
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (c *cached) List(_ context.Context, to client.ObjectList, opts ...client.ListOption) error {
	shared := (&client.ListOptions{}).ApplyOptions(opts).UnsafeDisableDeepCopy != nil
	switch to := to.(type) {
	case *rbacv1.RoleBindingList:
		all := rbacv1.RoleBindingList{Items: c.bindings}
		if *to = all; !shared {
			all.DeepCopyInto(to)
		}
	case *rbacv1.ClusterRoleBindingList:
		to.Items = c.clusters
	}
	return nil
}

// Many bindings, and many roles with long annotations, take bounded memory for each request of a
// user; and what administrators of the cluster have granted counts all the same.
func TestHostileRoles(t *testing.T) {
	const many = 2000
	long := `{"a":[""` + strings.Repeat(`,""`, (maxAnnotation-20)/3) + "]}"
	fill := func(roles int) *cached {
		c := &cached{roles: map[string]*rbacv1.Role{}, cluster: map[string]*rbacv1.ClusterRole{}}
		for i := range roles {
			name := fmt.Sprintf("r%04d", i)
			c.roles[name] = &rbacv1.Role{
				ObjectMeta: described("here", name, long),
				Rules:      make([]rbacv1.PolicyRule, 100),
			}
		}
		for i := range many {
			c.bindings = append(c.bindings, rbacv1.RoleBinding{
				ObjectMeta: described("here", fmt.Sprint("b", i), ""),
				RoleRef:    roleRef("Role", fmt.Sprintf("r%04d", i%roles)),
				Subjects:   append(subject("User", "", "ann"), make([]rbacv1.Subject, 50)...),
			})
		}
		return c
	}
	k := sdewan.Kinds()[0]
	request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Operation: admissionv1.Create,
		Namespace: "here",
		Resource:  metav1.GroupVersionResource{Group: k.GVK.Group, Version: k.GVK.Version, Resource: k.Resource},
		UserInfo:  authenticationv1.UserInfo{Username: "ann"},
	}}
	request.Object.Raw = []byte(`{"metadata":{"name":"x","namespace":"here"}}`)
	ask := func(c *cached) admission.Response {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out := (&permission{reader: c}).Handle(t.Context(), request)
		runtime.ReadMemStats(&after)
		require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(16),
			"MiB, of which little is in use at a time")
		return out
	}

	one := fill(1)
	require.False(t, ask(one).Allowed)
	require.Equal(t, 1, one.gets, "a role is read once")

	c := fill(many)
	out := ask(c)
	require.False(t, out.Allowed)
	require.Contains(t, out.Result.Message, "more than 256 KiB altogether")
	c.roles["r0000"].Annotations[sdewan.BucketAnnotation] = anything
	require.True(t, ask(c).Allowed)
	c.roles["r0000"].Annotations[sdewan.BucketAnnotation] = long
	c.cluster["zz"] = &rbacv1.ClusterRole{ObjectMeta: described("", "zz", anything)}
	c.clusters = []rbacv1.ClusterRoleBinding{{RoleRef: roleRef("ClusterRole", "zz")}}
	require.True(t, ask(c).Allowed, "the administrator of a namespace cannot take it away")
}
