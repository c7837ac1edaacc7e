package exchange

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
	"subctl/broker/trust"
)

func westEndpoint(t *testing.T, i int, annotation string) *submarinerv1.Endpoint {
	t.Helper()
	cable := fmt.Sprintf("submariner-cable-west-%d", i)
	e := &submarinerv1.Endpoint{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "west-" + cable,
			Namespace:       "hub",
			UID:             "u",
			ResourceVersion: "7",
			Labels:          map[string]string{submarinerv1.ClusterIDLabel: "west"},
			Annotations:     map[string]string{"a": annotation},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "x"}},
		},
		Spec: submarinerv1.EndpointSpec{ClusterID: "west", CableName: cable, Subnets: []string{"10.2.0.0/16"}},
	}
	signAs(t, "west", e)
	return e
}

func testMirror(t *testing.T, object client.Object, most int) *mirror {
	t.Helper()
	kind, err := Kinds().Of(object)
	require.NoError(t, err)
	return &mirror{
		namespace: "hub",
		kind:      kind,
		most:      most,
		changed:   func() {},
		stop:      func() {},
		objects:   map[string]client.Object{},
	}
}

// refusals are what a cluster says of what a mirror holds.
func refusals(t *testing.T, m *mirror, local ...client.Object) (texts []string, writes []Write) {
	t.Helper()
	objects, known, err := m.read()
	require.NoError(t, err)
	there := memberCluster(t, "west")
	here := there.DeepCopy()
	here.Namespace = "here"
	here.Annotations[submarinerv1.ClusterSetsAnnotation] = "default"
	here.Annotations[submarinerv1.GrantAnnotation] = trust.Bare(here.Annotations[submarinerv1.GrantAnnotation])
	writes, refused := planned(
		t,
		Snapshot{ClusterID: "east", Namespace: "here", Local: append(local, here), Sets: []SetSnapshot{
			{Set: Set{Name: "default", Namespace: "hub"}, Known: known, Objects: append(objects, there)},
		}},
	)
	for _, r := range refused {
		texts = append(texts, r.String())
	}
	return texts, writes
}

func TestMirrorKeepsStubs(t *testing.T) {
	m := testMirror(t, &submarinerv1.Endpoint{}, 10)
	large := westEndpoint(t, 1, strings.Repeat("x", 1<<20))
	large.Annotations[sizeAnnotation] = "1" // a lie
	small := westEndpoint(t, 2, "")
	require.NoError(t, m.Replace([]any{large, small}, ""))
	require.Empty(t, small.ManagedFields)
	require.NotContains(t, m.objects[large.Name].GetAnnotations(), "a", "it is kept")
	texts, writes := refusals(t, m)
	require.Equal(t,
		[]string{"Endpoint hub/west-submariner-cable-west-1 on the broker: it has 1048811 bytes, more than 16384"},
		texts)
	require.Len(t, writes, 1)

	t.Log("one that was small, one that is small again, and one that is gone")
	require.NoError(t, m.Update(westEndpoint(t, 2, strings.Repeat("x", 20000))))
	require.NoError(t, m.Update(westEndpoint(t, 1, "")))
	require.NoError(t, m.Add(westEndpoint(t, 3, strings.Repeat("x", 20000))))
	require.NoError(t, m.Delete(westEndpoint(t, 3, "")))
	texts, writes = refusals(t, m)
	require.Len(t, texts, 1)
	require.Contains(t, texts[0], "west-2 on the broker: it has 20")
	require.Len(t, writes, 1)

	t.Log("our own, which somebody made large there, is replaced by what is here")
	own := large.DeepCopy()
	own.Name = "east-submariner-cable-east-1"
	own.Labels[submarinerv1.ClusterIDLabel] = "east"
	own.Spec.ClusterID = "east"
	own.Spec.CableName = "submariner-cable-east-1"
	own.Annotations = map[string]string{"a": strings.Repeat("x", 20000)}
	mine := own.DeepCopy()
	mine.Namespace = "here"
	mine.Labels = nil
	mine.Annotations = nil
	require.NoError(t, m.Replace([]any{own}, ""))
	texts, writes = refusals(t, m, mine)
	require.Empty(t, texts)
	require.Len(t, writes, 1)
	require.Equal(t, Update, writes[0].Op)
	require.Equal(t, "7", writes[0].Object.GetResourceVersion())
	require.NotContains(t, writes[0].Object.GetAnnotations(), "a")
}

// A policy that becomes too large counts as it was.
func TestMirrorKeepsStubsOfPolicies(t *testing.T) {
	m := testMirror(t, &v1alpha1.CablePolicies{}, 10)
	policy := func() *v1alpha1.CablePolicies {
		return &v1alpha1.CablePolicies{
			ObjectMeta: metav1.ObjectMeta{
				Name:      "p",
				Namespace: "hub",
				Labels:    map[string]string{submarinerv1.ClusterIDLabel: "west"},
			},
			ConnectionPolicies: []v1alpha1.CablePolicySpec{{CableDriver: "wireguard"}},
		}
	}
	had := policy()
	signAs(t, "west", had)
	had.Name = "p.west.default"
	had.Namespace = "here"
	had.Labels[submarinerv1.ClusterSetLabel] = "default"
	large := policy()
	large.ConnectionPolicies[0].CableOptions = &v1alpha1.CableOptions{
		Data: map[string]string{"x": strings.Repeat("x", 20000)},
	}
	require.NoError(t, m.Replace([]any{large}, ""))
	texts, writes := refusals(t, m, had)
	require.Empty(t, writes)
	require.Equal(
		t,
		[]string{
			"CablePolicies hub/p on the broker: its last valid version stays in force: it has 20127 bytes, more than 16384",
		},
		texts,
	)

	annotated := policy()
	signAs(t, "west", annotated)
	annotated.Annotations[sizeAnnotation] = "99999"
	require.NoError(t, m.Update(annotated))
	texts, _ = refusals(t, m, had)
	require.Empty(t, texts, "annotations of policies are not copied, and do not count")
}

// Of a namespace with too many objects nothing is known: what was copied stays.
func TestMirrorOfTooMany(t *testing.T) {
	m := testMirror(t, &submarinerv1.Endpoint{}, 3)
	stopped := 0
	m.stop = func() { stopped++ }
	for i := range 3 {
		require.NoError(t, m.Add(westEndpoint(t, i, "")))
	}
	require.Zero(t, stopped)
	require.NoError(t, m.Add(westEndpoint(t, 3, "")))
	require.Equal(t, 1, stopped)
	objects, known, err := m.read()
	require.Empty(t, objects)
	require.False(t, known)
	require.EqualError(t, err,
		"namespace hub holds more than 3 objects of kind Endpoint: nothing is exchanged until some are deleted. subctl deploy-broker sets a quota")
	require.Empty(t, m.objects)

	var list []any
	for i := range 4 {
		list = append(list, westEndpoint(t, i, ""))
	}
	require.NoError(t, m.Replace(list, ""))
	require.Empty(t, m.objects)
	require.NoError(t, m.Replace(list[:3], ""))
	objects, known, err = m.read()
	require.NoError(t, err)
	require.True(t, known)
	require.Len(t, objects, 3)
}

// silent is a client of an API server that does not answer.
type silent struct{ client.WithWatch }

func (silent) List(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) error {
	<-ctx.Done()
	return ctx.Err()
}

func (silent) Watch(ctx context.Context, _ client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// An API server that does not answer is reported long before the request fails: client-go
// repeats it for minutes.
func TestMirrorReportsSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := testMirror(t, &submarinerv1.Endpoint{}, 10)
		m.client = silent{}
		ctx, stop := context.WithCancel(t.Context())
		go m.run(ctx)
		time.Sleep(10 * time.Second)
		_, known, err := m.read()
		require.False(t, known)
		require.NoError(t, err, "too early to tell")
		time.Sleep(10 * time.Second)
		_, _, err = m.read()
		require.ErrorIs(t, err, errNoAnswer)
		m.contact(nil)
		_, _, err = m.read()
		require.NoError(t, err)
		stop()
		synctest.Wait()
	})
}

// A cluster that was revoked reports that, once for all objects; every other error names its
// object.
func TestFailedWrites(t *testing.T) {
	hub := side{set: Set{Name: "default", Namespace: "hub"}}
	unauthorized := apierrors.NewUnauthorized("Unauthorized")
	e := westEndpoint(t, 1, "")
	kind, err := Kinds().Of(e)
	require.NoError(t, err)
	write := Write{Op: Create, Set: "default", Object: e, kind: kind}
	require.EqualError(
		t,
		hub.failed(write, unauthorized),
		"writing to clusterset default on the broker: Unauthorized: "+
			"this cluster was revoked, or its token was deleted: join it again with subctl join",
	)
	require.ErrorContains(t, hub.failed(write, errNoAnswer), "Endpoint west-submariner-cable-west-1")
	require.ErrorContains(t, side{}.failed(write, unauthorized), "Endpoint west-submariner-cable-west-1")
}
