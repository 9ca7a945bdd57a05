module lists

go 1.26
