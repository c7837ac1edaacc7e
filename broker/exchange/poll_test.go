package exchange

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	submarinerv1 "subctl/api/submariner/v1"
)

// polledMirror returns a mirror of Clusters that polls a server, what the server sends, and how
// often the mirror has changed.
func polledMirror(t *testing.T) (m *mirror, body *string, changes *int) {
	t.Helper()
	body = new(string)
	changes = new(int)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(*body))
	}))
	t.Cleanup(server.Close)
	kinds := Table{clusters()}
	c, hangUp, err := watchClient(&rest.Config{Host: server.URL}, kinds)
	require.NoError(t, err)
	t.Cleanup(hangUp)
	m = testMirror(t, &submarinerv1.Cluster{}, 100)
	m.client = c.WithWatch
	m.lists = c.lists[0]
	m.changed = func() { *changes++ }
	return m, body, changes
}

// listOf returns a list of Clusters as an API server sends it.
func listOf(t *testing.T, version string, clusters ...*submarinerv1.Cluster) string {
	t.Helper()
	var items []string
	for _, c := range clusters {
		text, err := json.Marshal(c)
		require.NoError(t, err)
		items = append(items, string(text))
	}
	return fmt.Sprintf(
		`{"apiVersion":"submariner.io/v1","items":[%s],"kind":"ClusterList","metadata":{"continue":"","resourceVersion":%q}}`+
			"\n",
		strings.Join(items, ","),
		version,
	)
}

func clusterOfVersion(t *testing.T, version string) *submarinerv1.Cluster {
	t.Helper()
	c := memberCluster(t, "west")
	c.Namespace = "hub"
	c.UID = "u"
	c.ResourceVersion = version
	return c
}

// held returns the versions of what a mirror holds.
func held(m *mirror) (versions []string) {
	for _, o := range m.objects {
		versions = append(versions, o.GetResourceVersion())
	}
	return versions
}

// A list that has the same items as the list before is not decoded, but its version counts.
func TestPollDecodesChangesOnly(t *testing.T) {
	m, body, changes := polledMirror(t)
	*body = listOf(t, "10", clusterOfVersion(t, "7"))
	changed, again := m.poll(t.Context())
	require.True(t, changed)
	require.False(t, again)
	require.Equal(t, []string{"7"}, held(m))
	require.Equal(t, 1, *changes)
	decoded := testing.AllocsPerRun(20, func() { m.digest = 0; m.poll(t.Context()) })
	same := testing.AllocsPerRun(20, func() { m.poll(t.Context()) })
	t.Logf("allocations: %.0f for a list that is decoded, %.0f for the same list", decoded, same)
	require.Less(t, same+20, decoded)
	*body = listOf(t, "11", clusterOfVersion(t, "7"))
	m.poll(t.Context())
	require.Equal(t, "11", m.version)
	require.Equal(t, 1, *changes)
	*body = listOf(t, "12", clusterOfVersion(t, "12"))
	m.poll(t.Context())
	require.Equal(t, []string{"12"}, held(m))
	require.Equal(t, 2, *changes)
	*body = listOf(t, "13")
	m.poll(t.Context())
	require.Empty(t, held(m))
	require.Equal(t, 3, *changes)
}

// What the cluster itself has written since the last list is replaced by the next one, also if that
// is the same as the last one: somebody has undone the write.
func TestPollAfterWrite(t *testing.T) {
	m, body, _ := polledMirror(t)
	*body = listOf(t, "10", clusterOfVersion(t, "7"))
	m.poll(t.Context())
	m.wrote("west", clusterOfVersion(t, "11"))
	require.Equal(t, []string{"11"}, held(m))
	m.poll(t.Context())
	require.Equal(t, []string{"7"}, held(m))
	m.wrote("west", nil)
	require.Empty(t, held(m))
	m.poll(t.Context())
	require.Equal(t, []string{"7"}, held(m))
	m.objects = map[string]client.Object{} // what a watch has shown
	m.restart()
	m.poll(t.Context())
	require.Equal(t, []string{"7"}, held(m), "it is read anew when it is not watched any more")
}

// A list whose metadata does not follow the items is decoded every time.
func TestPollOfOtherLists(t *testing.T) {
	m, body, changes := polledMirror(t)
	for i, version := range []string{"7", "8", "8"} {
		text, err := json.Marshal(clusterOfVersion(t, version))
		require.NoError(t, err)
		*body = fmt.Sprintf(
			`{"kind":"ClusterList","apiVersion":"submariner.io/v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
			10+i, text)
		m.poll(t.Context())
		require.Equal(t, []string{version}, held(m))
		require.Equal(t, fmt.Sprint(10+i), m.version)
		require.Zero(t, m.digest)
	}
	require.Equal(t, 2, *changes)
	for _, text := range []string{
		"",
		"{}",
		`{"items":[],"metadata":{}}`,
		`{"items":[],"metadata":{"continue":"x","resourceVersion":"1"}}`,
		`{"metadata":{"resourceVersion":"1"},"items":[]}`,
	} {
		items, _ := splitList([]byte(text))
		require.Nil(t, items, text)
	}
}

// Most polls read the Clusters only. They read all kinds when the Clusters have changed, when a
// list has failed, and every second time.
func TestPollOfClustersFirst(t *testing.T) {
	kinds := Kinds()
	asked := 0
	version := "7"
	broken := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		switch path.Base(r.URL.Path) {
		case "clusters":
			_, _ = w.Write([]byte(listOf(t, "10", clusterOfVersion(t, version))))
		case "endpoints":
			if broken {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			fallthrough
		default:
			_, _ = w.Write([]byte(listOf(t, "10")))
		}
	}))
	t.Cleanup(server.Close)
	c, hangUp, err := watchClient(&rest.Config{Host: server.URL}, kinds)
	require.NoError(t, err)
	t.Cleanup(hangUp)
	s := New(Config{}).side(Set{Name: "a"}, c, "hub-a")
	r := newRounds()
	at := &turn{side: s}
	r.turns["a"] = at
	now := time.Unix(1000, 0)
	lists := func() int {
		asked = 0
		now = now.Add(period)
		next, _ := r.next(now)
		require.Same(t, at, next)
		r.planNextPoll(at, s.poll(t.Context(), r.lists, next.all), now)
		return asked
	}
	require.Equal(t, []int{4, 1, 4, 1, 4, 1}, []int{lists(), lists(), lists(), lists(), lists(), lists()})
	lists()
	version = "8"
	require.Equal(t, 4, lists(), "the Clusters have changed")
	broken = true
	require.Equal(t, 4, lists())
	require.Error(t, s.fault())
	broken = false
	require.Equal(t, 4, lists(), "a list has failed")
	require.NoError(t, s.fault())
	at.hurried = now.Add(time.Hour)
	require.Equal(t, []int{4, 4}, []int{lists(), lists()}, "a change was announced")
}

// Polls wait for each other, except when a change was announced.
func TestPollsGoTogether(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRounds()
	at := &turn{due: now.Add(time.Millisecond)}
	r.turns["a"] = at
	next, wait := r.next(now)
	require.Nil(t, next)
	require.Equal(t, batch, wait)
	at.hurried = now.Add(time.Second)
	_, wait = r.next(now)
	require.Equal(t, time.Millisecond, wait)
}
