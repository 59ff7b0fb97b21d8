# perseus, 2x1 barrier
# gnuplot 'perseus.2x1.barrier.0-0-0.gnu' writes 'perseus.2x1.barrier.0-0-0.svg'
set terminal svg size 800,1200 background 'white'
set output 'perseus.2x1.barrier.0-0-0.svg'
set datafile missing '?'
set multiplot layout 3,1 title 'perseus, 2x1 barrier' noenhanced
set xlabel 'size, bytes'
set ylabel 'time, ms'
set key top left
plot 'perseus.2x1.barrier.0-0-0.subsamples' using 1:5 with dots title 'subsample', 'perseus.2x1.barrier.0-0-0.summary' using 1:2 with linespoints title 'minimum', \
     'perseus.2x1.barrier.0-0-0.summary' using 1:3 with linespoints title 'mean'
set ylabel 'time, ms'
set zlabel 'density'
set ticslevel 0
splot for [i=0:0] 'perseus.2x1.barrier.0-0-0.histograms' index i using 1:(($2+$3)/2):5 with lines notitle
set ylabel 'time, ms'
set logscale y
plot 'perseus.2x1.barrier.0-0-0.summary' using 1:2 with lines title 'minimum', \
     'perseus.2x1.barrier.0-0-0.summary' using 1:3 with lines title 'mean', \
     'perseus.2x1.barrier.0-0-0.summary' using 1:6 with lines title 'boundary'
unset multiplot
