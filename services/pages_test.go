package services

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"subctl/api/submariner/v1alpha1"
)

// recordOf returns a record of about as many bytes of JSON as given.
func recordOf(name string, bytes int) v1alpha1.ExportedService {
	r := v1alpha1.ExportedService{Namespace: "shop", Name: name, ExportedAt: 1000}
	r.Annotations = map[string]string{"a": ""}
	r.Annotations["a"] = strings.Repeat("x", max(0, bytes-jsonSize(&r)))
	return r
}

// recordsOf returns as many records as given, of about as many bytes each. Later ones are younger.
func recordsOf(n, bytes int) (all []v1alpha1.ExportedService) {
	for i := range n {
		r := recordOf(fmt.Sprintf("s%05d", i), bytes)
		r.ExportedAt += int64(i)
		all = append(all, r)
	}
	return all
}

// pagesText returns the names of the records of each page, such as "a b".
func pagesText(pages []*v1alpha1.ExportedServices) (lines []string) {
	for _, p := range pages {
		var names []string
		for _, r := range p.Spec.Services {
			names = append(names, r.Name)
		}
		lines = append(lines, strings.Join(names, " "))
	}
	return lines
}

// A record stays in its page, and a new one goes to the first page with room.
func TestPages(t *testing.T) {
	sizes := func(sizes ...any) (all []v1alpha1.ExportedService) {
		for i := 0; i < len(sizes); i += 2 {
			all = append(all, recordOf(sizes[i].(string), sizes[i+1].(int)))
		}
		return all
	}
	var pages []*v1alpha1.ExportedServices
	for _, step := range []struct {
		name    string
		records []v1alpha1.ExportedService
		want    []string // the names of the records of each page
	}{
		{"a cluster that never exported anything", nil, nil},
		{"the first export", sizes("c", 5000), []string{"c"}},
		{"a page has room for two", sizes("a", 5000, "c", 5000), []string{"a c"}},
		{"and no more", sizes("a", 5000, "b", 5000, "c", 5000), []string{"a c", "b"}},
		{"growth moves nothing", sizes("a", 9000, "b", 5000, "c", 5000), []string{"a c", "b"}},
		{"except where the page is full", sizes("a", 11000, "b", 5000, "c", 5000), []string{"a", "b c"}},
		{"nothing moves back", sizes("a", 5000, "b", 5000, "c", 5000), []string{"a", "b c"}},
		{"a new one fills the first", sizes("a", 5000, "b", 5000, "c", 5000, "d", 5000), []string{"a d", "b c"}},
		{"an empty page before others stays", sizes("b", 5000), []string{"", "b"}},
		{"until it is filled", sizes("d", 5000), []string{"d"}},
		{"the first page stays", nil, []string{""}},
		{"for good", nil, []string{""}},
	} {
		var left []types.NamespacedName
		pages, left = Pages("east", pages, step.records)
		require.Equal(t, step.want, pagesText(pages), step.name)
		require.Empty(t, left, step.name)
		requireBounds(t, pages)
	}
}

// Objects that are no pages of the cluster do not matter, and while a record moves, two pages have
// it.
func TestPagesOfOthers(t *testing.T) {
	foreign := newPage("west", 0, 1, nil, nil)
	pages, _ := Pages("east", []*v1alpha1.ExportedServices{foreign}, nil)
	require.Empty(t, pages)

	a := []v1alpha1.ExportedService{recordOf("a", 100)}
	moving := []*v1alpha1.ExportedServices{newPage("east", 3, 4, a, []int{0}), newPage("east", 1, 4, a, []int{0})}
	pages, _ = Pages("east", moving, a)
	require.Equal(t, []string{"", "a"}, pagesText(pages))
}

// Where not all records fit, the oldest come first, and it does not depend on the pages that there
// are.
func TestPagesLeaveTheYoungest(t *testing.T) {
	const fit = 2 * v1alpha1.MaxExportPages
	records := recordsOf(fit+2, 6000)
	pages, left := Pages("east", nil, records)
	require.Len(t, pages, v1alpha1.MaxExportPages)
	require.Equal(t, []types.NamespacedName{nameOf(&records[fit]), nameOf(&records[fit+1])}, left)

	// An older export displaces the youngest one.
	records[fit+1].ExportedAt = 1
	again, left := Pages("east", pages, records)
	require.Equal(t, []types.NamespacedName{nameOf(&records[fit-1]), nameOf(&records[fit])}, left)
	require.Equal(t, 1, changed(pages, again))

	// A record that fits in no page is left, and the others are not.
	_, left = Pages("east", nil, append(recordsOf(3, 100), recordOf("zzz", 20000)))
	require.Equal(t, []types.NamespacedName{{Namespace: "shop", Name: "zzz"}}, left)
}

// However small records are, a page has no more than its schema allows.
func TestPagesOfSmallRecords(t *testing.T) {
	var records []v1alpha1.ExportedService
	for i := range 300 {
		records = append(records, v1alpha1.ExportedService{Namespace: "a", Name: fmt.Sprintf("%d", i)})
	}
	pages, left := Pages("east", nil, records)
	require.Empty(t, left)
	require.Len(t, pages, 2)
	requireBounds(t, pages)
}

// Records that do not fit beside those that stay in their pages are all packed anew.
func TestPagesPackAnew(t *testing.T) {
	var pages []*v1alpha1.ExportedServices
	small := recordsOf(v1alpha1.MaxExportPages, 5500)
	for i := range small { // each alone in its page
		pages = append(pages, newPage("east", i, len(small), small, []int{i}))
	}
	records := small
	for i := range 32 {
		records = append(records, recordOf(fmt.Sprintf("big%02d", i), 11000))
	}
	again, left := Pages("east", pages, records)
	require.Empty(t, left)
	requireBounds(t, again)
	published := 0
	for _, p := range again {
		published += len(p.Spec.Services)
	}
	require.Equal(t, len(records), published)
}

// changed returns how many pages differ.
func changed(a, b []*v1alpha1.ExportedServices) (n int) {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || jsonSize(a[i].Spec) != jsonSize(b[i].Spec) ||
			!slices.EqualFunc(a[i].Spec.Services, b[i].Spec.Services, equalRecords) {
			n++
		}
	}
	return n
}

func equalRecords(a, b v1alpha1.ExportedService) bool {
	return compareRecords(a, b) == 0 && a.Address == b.Address && a.Annotations["a"] == b.Annotations["a"]
}

// requireBounds requires that the pages of cluster east are in order, and full at most.
func requireBounds(t *testing.T, pages []*v1alpha1.ExportedServices) {
	t.Helper()
	for i, p := range pages {
		require.Equal(t, "submariner-operator", p.Namespace)
		require.Equal(t, fmt.Sprintf("east-services-%d", i), p.Name)
		require.Equal(t, "east", p.Spec.ClusterID)
		require.Equal(t, len(pages), p.Spec.Pages)
		require.LessOrEqual(t, jsonSize(p.Spec), fullPage)
		require.LessOrEqual(t, len(p.Spec.Services), v1alpha1.MaxPageServices)
		require.True(t, slices.IsSortedFunc(p.Spec.Services, compareRecords))
	}
}

// Whatever records come, grow and go: all are published once or left, within bounds, and packing
// the same records again changes nothing.
func TestPagesProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var pages []*v1alpha1.ExportedServices
		records := map[string]v1alpha1.ExportedService{}
		bytes := 100 + random.IntN(8000)
		for range 30 {
			for range random.IntN(40) {
				r := recordOf(fmt.Sprintf("s%d", random.IntN(300)), random.IntN(bytes))
				r.ExportedAt = random.Int64N(1000)
				records[r.Name] = r
			}
			for _, name := range slices.Sorted(maps.Keys(records)) {
				if random.IntN(20) == 0 {
					delete(records, name)
				}
			}
			var all []v1alpha1.ExportedService
			var want []string
			for name, r := range records {
				all = append(all, r)
				want = append(want, name)
			}
			var left []types.NamespacedName
			pages, left = Pages("east", pages, all)
			requireBounds(t, pages)
			var have []string
			for _, key := range left {
				have = append(have, key.Name)
			}
			for _, p := range pages {
				for _, r := range p.Spec.Services {
					have = append(have, r.Name)
				}
			}
			require.ElementsMatch(t, want, have)

			again, leftAgain := Pages("east", pages, all)
			require.Equal(t, pages, again)
			require.Equal(t, left, leftAgain)
		}
	}
}

// A change of one record is a change of one page.
func TestPagesChangeOne(t *testing.T) {
	records := recordsOf(1000, 480)
	pages, _ := Pages("east", nil, records)
	require.Greater(t, len(pages), 30)
	for i := 0; i < len(records); i += 37 {
		one := slices.Clone(records)
		one[i] = recordOf(one[i].Name, 1400)
		one[i].ExportedAt = records[i].ExportedAt
		again, _ := Pages("east", pages, one)
		require.Equal(t, 1, changed(pages, again), one[i].Name)
	}
}

// 10,000 records are packed in much less than a second.
func BenchmarkPages(b *testing.B) {
	records := recordsOf(10_000, 211)
	have, _ := Pages("east", nil, records)
	for b.Loop() {
		Pages("east", have, records)
	}
}
