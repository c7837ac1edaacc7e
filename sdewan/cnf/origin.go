package cnf

import (
	"slices"

	"subctl/dataplane"
	"subctl/sdewan/rest"
)

// Origin is an object of the REST API because of which a plan has something.
type Origin struct {
	Collection *rest.Collection
	Name       string
}

// origins has the Origins of objects for the kernel, each once.
type origins map[dataplane.Key][]Origin

func (o origins) add(k dataplane.Key, l *rest.Collection, name string) {
	if one := (Origin{l, name}); !slices.Contains(o[k], one) {
		o[k] = append(o[k], one)
	}
}

// Origins returns, for what a plan has for single objects of the REST API, which these are: if the
// kernel refuses it, they have no effect. What is in no single object's interest is missing, and so
// is the table of nftables, in which most objects have rules.
func Origins(c rest.Config, w World) map[dataplane.Key][]Origin { return planOf(c, w).origins }
