package services

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	submarinerv1 "subctl/api/submariner/v1"
	"subctl/api/submariner/v1alpha1"
)

// Sizes of pages, in bytes of the JSON of their spec. An object may have 16 KiB with its metadata
// on the broker. A page that is filled to usualPage has room for records that grow, which moves
// them to no other page: a change should be one write (adr/0048).
const (
	usualPage = 12 << 10
	fullPage  = 15 << 10
	// emptyPage is the size of a page without records, at most.
	emptyPage = len(`{"clusterID":"","pages":64,"services":[]}`) + 63
	// maxRecord is the maximum size of a record, which fits in an empty page.
	maxRecord = usualPage - emptyPage - len(",")
)

// Pages returns the pages of a cluster with records, given the pages that it has: a record stays in
// its page, so that few pages change. Oldest exports come first where not all fit; the others are
// left. A cluster that has ever exported a Service has at least one page, which may be empty:
// another cluster could otherwise not tell whether its pages are withheld. Pages for which the
// broker has no place do not count among the pages that each page states: the others are complete
// without them.
func Pages(
	clusterID string, have []*v1alpha1.ExportedServices, records []v1alpha1.ExportedService,
) (want []*v1alpha1.ExportedServices, left []types.NamespacedName) {
	records = slices.Clone(records)
	slices.SortFunc(records, compareRecords)
	sizes := make([]int, len(records))
	oldest := make([]int, len(records))
	for r := range records {
		sizes[r] = jsonSize(&records[r]) + len(",")
		oldest[r] = r
	}
	slices.SortStableFunc(oldest,
		func(a, b int) int { return cmp.Compare(records[a].ExportedAt, records[b].ExportedAt) })

	// Which records are published depends on the records alone, so that it changes only with them.
	packed := packing{sizes: sizes}
	var chosen []int
	for _, r := range oldest {
		if packed.add(r, usualPage) {
			chosen = append(chosen, r)
		} else {
			left = append(left, nameOf(&records[r]))
		}
	}
	slices.SortFunc(left, compareNames)

	places, some := placesIn(clusterID, have)
	if kept := (packing{sizes: sizes}); kept.keep(chosen, func(r int) (int, bool) {
		at, had := places[nameOf(&records[r])]
		return at, had
	}) {
		packed = kept
	}
	n := packed.count()
	if some {
		n = max(n, 1)
	}
	readable := placesOf(clusterID, have)
	for at := range n {
		count := min(n, max(readable, at+1))
		want = append(want, newPage(clusterID, at, count, records, packed.pages[at].records))
	}
	return want, left
}

func compareRecords(a, b v1alpha1.ExportedService) int {
	return compareNames(nameOf(&a), nameOf(&b))
}

// placesIn returns the number of the page of each record, and whether there is any page. While a
// record moves, two pages have it.
func placesIn(clusterID string, have []*v1alpha1.ExportedServices) (places map[types.NamespacedName]int, some bool) {
	places = map[types.NamespacedName]int{}
	for _, page := range have {
		at, ok := v1alpha1.ExportedServicesPage(clusterID, page.Name)
		if !ok {
			continue
		}
		some = true
		for r := range page.Spec.Services {
			key := nameOf(&page.Spec.Services[r])
			if other, has := places[key]; !has || at < other {
				places[key] = at
			}
		}
	}
	return places, some
}

func newPage(clusterID string, at, count int, of []v1alpha1.ExportedService, records []int) *v1alpha1.ExportedServices {
	page := &v1alpha1.ExportedServices{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: submarinerv1.OperatorNamespace,
			Name:      v1alpha1.ExportedServicesName(clusterID, at),
			Labels:    map[string]string{submarinerv1.ManagedByLabel: submarinerv1.ManagedBy},
		},
		Spec: v1alpha1.ExportedServicesSpec{ClusterID: clusterID, Pages: count},
	}
	slices.Sort(records)
	for _, r := range records {
		page.Spec.Services = append(page.Spec.Services, of[r])
	}
	return page
}

// packing is which records are in which pages. Records are numbers.
type packing struct {
	sizes []int // of records
	pages [v1alpha1.MaxExportPages]struct {
		size    int
		records []int
	}
}

// put puts a record into a page with at most as many bytes as given. It reports whether there was
// room.
func (p *packing) put(r, at, most int) bool {
	page := &p.pages[at]
	if emptyPage+page.size+p.sizes[r] > most || len(page.records) == v1alpha1.MaxPageServices {
		return false
	}
	page.size += p.sizes[r]
	page.records = append(page.records, r)
	return true
}

// add puts a record into the first page with room.
func (p *packing) add(r, most int) bool {
	for at := range p.pages {
		if p.put(r, at, most) {
			return true
		}
	}
	return false
}

// keep puts records into the pages that they have, as far as there is room, then the rest into
// others. It reports whether all of them are in a page.
func (p *packing) keep(records []int, place func(r int) (int, bool)) bool {
	var rest []int
	for _, r := range records {
		if at, had := place(r); !had || !p.put(r, at, fullPage) {
			rest = append(rest, r)
		}
	}
	for _, r := range rest {
		if !p.add(r, usualPage) && !p.add(r, fullPage) {
			return false
		}
	}
	return true
}

// count returns how many pages there are up to the last one with records.
func (p *packing) count() int {
	n := len(p.pages)
	for n > 0 && len(p.pages[n-1].records) == 0 {
		n--
	}
	return n
}
