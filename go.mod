module github.com/microscale-go/microscale

go 1.26
